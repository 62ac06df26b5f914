"""PK and uniform batches: what is in them, in which order, resumed and shared between ranks."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from support.errors import refused
from uncollapse._base.check import InputError
from uncollapse.samplers import PKSampler, UniformBatchSampler

LABELS = np.repeat(np.arange(12), 9)[np.random.default_rng(0).permutation(108)]


def samplers(**more):
    return [
        PKSampler(LABELS, 4, 3, seed=5, **more),
        UniformBatchSampler(len(LABELS), 12, seed=5, **more),
    ]


@given(
    seed=st.integers(0, 10**6),
    counts=st.lists(st.integers(1, 9), min_size=2, max_size=9),
    k=st.integers(2, 6),
)
def test_a_pk_batch_has_p_classes_with_k_samples_each(seed, counts, k):
    labels = np.repeat(np.arange(len(counts)) * 7 - 3, counts)
    drawable = [c for c in counts if c > 1]
    if not drawable:
        return
    p = len(drawable)
    sampler = PKSampler(labels, p, k, seed, batches=3)
    for batch in sampler:
        found, times = np.unique(labels[batch], return_counts=True)
        assert len(found) == p
        assert set(times) == {k}
        for label in found:
            _, copies = np.unique([i for i in batch if labels[i] == label], return_counts=True)
            assert copies.max() - copies.min() <= 1  # repeats only once all have been taken
            size = (labels == label).sum()
            assert len(copies) == min(size, k)


def test_short_classes_can_be_skipped_or_refused():
    labels = [0] * 5 + [1] * 2 + [2] * 5
    skipping = PKSampler(labels, 2, 4, seed=0, batches=20, short="skip")
    assert {labels[i] for batch in skipping for i in batch} == {0, 2}
    with pytest.raises(InputError, match="label 1 with 2 samples"):
        PKSampler(labels, 2, 4, seed=0, short="error")
    with refused("p"):
        PKSampler(labels, 3, 4, seed=0, short="skip")


def test_classes_are_drawn_uniformly_whatever_their_size():
    labels = np.repeat(np.arange(6), [2, 4, 8, 16, 32, 64])
    for seed in range(2):
        sampler = PKSampler(labels, 2, 2, seed, batches=3000)
        classes = np.bincount([labels[b[i]] for b in sampler for i in (0, 2)], minlength=6)
        # 1000 of 3000 batches hold each class; 6 standard deviations are 155.
        assert np.abs(classes - 1000).max() < 155


def test_samples_of_a_class_are_drawn_uniformly():
    labels = np.repeat(np.arange(2), 10)
    for seed in range(2):
        drawn = [i for b in PKSampler(labels, 2, 3, seed, batches=2000) for i in b]
        rows = np.bincount(drawn, minlength=20)
        assert np.abs(rows - 600).max() < 123  # 6 standard deviations of a binomial of 2000, 0.3


@given(n=st.integers(1, 60), size=st.integers(1, 60), seed=st.integers(0, 999))
def test_a_uniform_pass_shows_no_sample_twice(n, size, seed):
    if size > n:
        return
    sampler = UniformBatchSampler(n, size, seed)
    rows = [i for batch in sampler for i in batch]
    assert len(rows) == len(set(rows)) == n // size * size
    more = list(UniformBatchSampler(n, size, seed, batches=3 * (n // size)))
    assert [i for batch in more[: n // size] for i in batch] == rows
    assert all(len(set(batch)) == size for batch in more)


@pytest.mark.parametrize("which", [0, 1])
def test_the_seed_and_the_epoch_decide_every_batch(which):
    one, two = samplers()[which], samplers()[which]
    first, second = list(one), list(one)
    assert first != second
    assert first == list(two)
    two.set_epoch(1)
    assert list(two) == second
    one.set_epoch(0)
    assert list(one) == first


@pytest.mark.parametrize("which", [0, 1])
def test_a_break_does_not_advance_the_epoch(which):
    sampler = samplers()[which]
    peek = next(iter(sampler))
    first, *rest = sampler
    assert first == peek
    assert len(rest) == len(sampler) - 1


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("done", [0, 1, 4, 9])
def test_a_run_goes_on_exactly_where_it_stopped(which, done):
    whole = samplers()[which]
    two_epochs = list(whole) + list(whole)
    stopped = samplers()[which]
    iterator = iter(stopped)
    seen = [next(iterator) for _ in range(done)]
    resumed = samplers()[which]
    resumed.load_state_dict(stopped.state_dict())
    assert seen + list(resumed) + (list(resumed) if done < len(whole) else []) == two_epochs


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_with_workers_resumes_after_what_was_consumed(which, workers):
    data = TensorDataset(torch.arange(len(LABELS)))

    def loader(sampler):
        return DataLoader(data, batch_sampler=sampler, num_workers=workers)

    whole = [batch[0].tolist() for batch in loader(samplers()[which])]
    stopped = samplers()[which]
    seen = []
    for batch in loader(stopped):
        seen.append(batch[0].tolist())
        if len(seen) == 3:
            state = stopped.state_dict(consumed=3)
            break
    resumed = samplers()[which]
    resumed.load_state_dict(state)
    assert seen + [batch[0].tolist() for batch in loader(resumed)] == whole


@pytest.mark.slow
@pytest.mark.parametrize("which", [0, 1])
def test_ranks_share_the_batch_of_one_process(which):
    whole = list(samplers()[which])
    for world in (2, 4):
        parts = [list(samplers(rank=r, world_size=world)[which]) for r in range(world)]
        together = [[row for part in batch for row in part] for batch in zip(*parts, strict=True)]
        assert together == whole
        if which == 0:  # every rank keeps whole classes
            sizes = {size for part in parts for b in part for size in np.bincount(LABELS[b])}
            assert sizes == {0, 3}


def resumed(**changed):
    state = PKSampler(LABELS, 4, 3, seed=5).state_dict()
    PKSampler(**{"labels": LABELS, "p": 4, "k": 3, "seed": 5} | changed).load_state_dict(state)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("p", lambda: PKSampler([0, 0, 1], 2, 2, seed=0)),
        ("p", lambda: PKSampler(LABELS, 0, 2, seed=0)),
        ("k", lambda: PKSampler(LABELS, 2, 1, seed=0)),
        ("p", lambda: PKSampler(LABELS, 3, 2, seed=0, world_size=2)),
        ("rank", lambda: PKSampler(LABELS, 2, 2, seed=0, rank=2, world_size=2)),
        ("short", lambda: PKSampler(LABELS, 2, 2, seed=0, short="pad")),
        ("batches", lambda: PKSampler(LABELS, 2, 2, seed=0, batches=0)),
        ("batch_size", lambda: UniformBatchSampler(5, 6, seed=0)),
        ("batch_size", lambda: UniformBatchSampler(9, 3, seed=0, world_size=2)),
        ("state of seed", lambda: resumed(seed=6)),
        ("state of labels", lambda: resumed(labels=LABELS[::-1])),
        ("consumed", lambda: PKSampler(LABELS, 4, 3, seed=5).state_dict(consumed=1000)),
    ],
)
def test_impossible_settings_and_states_are_named(name, make):
    with refused(name):
        make()


def test_labels_may_be_tensors_or_words():
    words = ["a", "b", "a", "b"]
    assert sorted(next(iter(PKSampler(words, 2, 2, seed=0)))) == [0, 1, 2, 3]
    assert sorted(next(iter(PKSampler(torch.tensor([5, 5, 9, 9]), 2, 2, seed=0)))) == [0, 1, 2, 3]
    assert len(UniformBatchSampler(words, 2, seed=0)) == 2
