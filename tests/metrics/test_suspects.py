"""Suspect labels: the model of votes against loops in float64, and what it promises of labels."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from support.errors import refuses
from uncollapse.metrics import suspect_labels
from uncollapse.metrics.suspects import count_votes, fit_votes


def lumps(classes=8, size=30, dim=6, apart=6.0, modes=1, seed=0):
    """Classes of one or more modes, well apart."""
    rng = np.random.default_rng(seed)
    centres = apart * rng.normal(size=(classes * modes, dim))
    mode = np.repeat(np.arange(classes * modes), size // modes)
    return centres[mode] + rng.normal(size=(len(mode), dim)), mode % classes


def made_wrong(labels, share, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(labels))[: round(share * len(labels))]
    noisy, classes = labels.copy(), int(labels.max()) + 1
    noisy[rows] = (labels[rows] + rng.integers(1, classes, len(rows))) % classes
    return noisy, np.sort(rows)


# ---- the model


def slow_ratios(near, ids, tau, decay=0.5):
    """log P(own label | votes) / P(own label) of each row, from the module's formula in float64."""
    n, k = near.shape
    classes, own = np.unique(ids, return_inverse=True)
    share = np.array([(ids == c).mean() for c in classes])
    agree = np.mean([[ids[j] == ids[i] for j in near[i]] for i in range(n)])
    chance = (share**2).sum()
    same = min(max((agree - chance) / (1 - chance), 0.0), 0.999)
    kappa = same / (1 - same)
    votes = np.zeros((n, len(classes)))
    for i in range(n):
        for rank in range(k):
            votes[i, own[near[i, rank]]] += (rank + 1) ** -decay
    weight = share * (1 + kappa / share) ** (tau * votes)
    return np.log((weight / weight.sum(axis=1, keepdims=True) / share)[np.arange(n), own])


@given(seed=st.integers(0, 2**32), classes=st.integers(2, 6), k=st.integers(1, 8))
def test_the_fit_is_the_likeliest_of_a_grid_in_float64(seed, classes, k):
    rng = np.random.default_rng(seed)
    n = 30
    ids = np.unique(rng.integers(0, classes, n), return_inverse=True)[1]
    near = np.stack([rng.permutation(np.delete(np.arange(n), i))[:k] for i in range(n)])
    near[:, 0] = [rng.choice(np.flatnonzero(ids == ids[i])) for i in range(n)]  # some knowledge
    judged = np.bincount(ids)[ids] > 1
    if ids.max() == 0:
        return
    _, _, information, _ = fit_votes(count_votes(near, ids, 0.5), ids, judged)
    ratios = [slow_ratios(near, ids, tau)[judged] for tau in np.geomspace(0.4, 10, 15)]
    best = max(
        np.log((1 - rate) * np.exp(ratio) + rate).mean()
        for ratio in ratios
        for rate in np.linspace(0, 0.999, 15)
    )
    assert information >= best - 1e-4 or best * judged.sum() < 10


def test_ratios_and_probabilities_are_those_of_the_formula():
    z, labels = lumps(4, 10, 3, 2.0)
    noisy, _ = made_wrong(labels, 0.1)
    suspects = suspect_labels(z, noisy, neighbours=5)
    near = np.asarray(suspects.neighbours)
    ratio, rate, _, _ = fit_votes(count_votes(near, noisy, 0.5), noisy, np.ones(40, bool))
    # τ is what the worst row's ratio says; all others must then follow.
    worst, taus = int(np.argmin(ratio)), np.geomspace(0.4, 10, 700)
    gap = [abs(slow_ratios(near, noisy, t)[worst] - ratio[worst]) for t in taus]
    np.testing.assert_allclose(slow_ratios(near, noisy, taus[np.argmin(gap)]), ratio, atol=2e-2)
    wrong = rate / (rate + (1 - rate) * np.exp(ratio))
    np.testing.assert_allclose(suspects.wrong, wrong)


def test_neighbours_are_the_nearest_other_rows():
    z, labels = lumps(3, 20, 4)
    distance = np.linalg.norm(z[:, None] - z, axis=2)
    np.fill_diagonal(distance, np.inf)
    result = suspect_labels(z, labels, neighbours=7)
    np.testing.assert_array_equal(result.neighbours, np.argsort(distance, axis=1)[:, :7])


# ---- what it promises


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("share", [0.05, 0.3])
@pytest.mark.parametrize("modes", [1, 3])
def test_wrong_labels_of_separate_classes_are_found_and_counted(seed, share, modes):
    z, labels = lumps(modes=modes, seed=seed)
    noisy, rows = made_wrong(labels, share, seed)
    result = suspect_labels(z, noisy)
    hit = np.isin(result.rows, rows)
    assert hit.mean() > 0.9
    assert hit.sum() > 0.9 * len(rows)
    assert result.expected == pytest.approx(len(rows), rel=0.35, abs=3)
    assert (result.suggested[rows] == labels[rows]).mean() > 0.9


@pytest.mark.parametrize("seed", range(3))
def test_clean_labels_are_left_alone(seed):
    z, labels = lumps(seed=seed)
    assert len(suspect_labels(z, labels).rows) == 0


@pytest.mark.parametrize("seed", range(3))
def test_labels_that_are_pure_noise_make_no_label_suspect(seed):
    rng = np.random.default_rng(seed)
    result = suspect_labels(rng.normal(size=(300, 5)), rng.integers(0, 10, 300))
    assert len(result.rows) <= 3
    assert result.information < 0.05


def test_a_rare_class_between_large_ones_is_not_suspect():
    z, labels = lumps(3, 200, 5)
    small = z[:1] + 30 + 0.5 * np.random.default_rng(0).normal(size=(3, 5))
    result = suspect_labels(np.r_[z, small], np.r_[labels, [9, 9, 9]])
    assert not np.isin([600, 601, 602], result.rows).any()


def test_a_row_alone_in_its_class_is_not_judged():
    z, labels = lumps(4, 20)
    labels[5] = 77
    result = suspect_labels(z, labels)
    assert not result.judged[5]
    assert 5 not in result.ranking
    assert result.wrong[5] == 0
    assert result.suggested[5] == 0  # yet what it would be is said
    assert "1 alone in their class" in str(result)


def test_the_ranking_is_worst_first_and_ties_go_to_the_lower_row():
    z, labels = lumps()
    result = suspect_labels(z, made_wrong(labels, 0.1)[0])
    score = result.score[result.ranking]
    assert (np.diff(score) <= 0).all()
    assert (np.diff(result.ranking)[np.diff(score) == 0] > 0).all()
    np.testing.assert_array_equal(result.rows, result.ranking[: len(result.rows)])


def test_far_from_the_origin_and_in_float32_the_answer_is_the_same():
    z, labels = lumps(dim=4)
    grid = np.round(z * 8) / 8  # exact in float32, also beside 2^16
    noisy, _ = made_wrong(labels, 0.1)
    here = suspect_labels(grid, noisy)
    far = suspect_labels(torch.from_numpy(grid + 2.0**16).float(), torch.from_numpy(noisy))
    np.testing.assert_array_equal(here.neighbours, far.neighbours)
    np.testing.assert_array_equal(here.rows, far.rows)


def test_cosines_forget_lengths():
    z, labels = lumps()
    noisy, _ = made_wrong(labels, 0.1)
    lengths = np.random.default_rng(0).uniform(0.1, 9, (len(z), 1))
    plain, scaled = (suspect_labels(x, noisy, normalize=True) for x in (z, z * lengths))
    np.testing.assert_array_equal(plain.rows, scaled.rows)


def test_names_are_labels_too():
    z, labels = lumps(2, 20)
    names = np.array(["cat", "dog"])[labels]
    names[0] = "dog"
    result = suspect_labels(z, names.tolist())
    assert result.rows.tolist() == [0]
    assert result.suggested[0] == "cat"


def test_few_rows_have_fewer_neighbours():
    assert suspect_labels([[0.0], [0.1], [5.0]], [0, 0, 1]).neighbours.shape == (3, 2)


def test_what_cannot_be_judged_is_refused_by_name():
    good = {"embeddings": np.eye(4), "labels": [0, 0, 1, 1]}
    refuses(suspect_labels, good, labels=[[0, 0, 0, 0], [0, 1, 2, 3], [0, 0, 1]])
    refuses(suspect_labels, good, neighbours=[0], max_memory=["much"])
    refuses(suspect_labels, good | {"normalize": True}, embeddings=[np.zeros((4, 2))])


def test_candidates_are_the_rows_that_follow_down_to_the_estimated_number():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(20), 40)
    z = rng.normal(size=(20, 8))[labels] + 0.75 * rng.normal(size=(800, 8))
    wrong = rng.permutation(800)[:80]
    labels[wrong] = (labels[wrong] + rng.integers(1, 20, 80)) % 20
    result = suspect_labels(z, labels)
    assert len(result.candidates) == round(result.expected) - len(result.rows) > 5
    assert [*result.listed] == result.ranking[: round(result.expected)].tolist()
    assert [*result.listed.values()] == ["suspect"] * len(result.rows) + ["candidate"] * len(
        result.candidates
    )
    chance = result.wrong[result.candidates]
    assert 0.05 <= chance.min() <= chance.max() <= 0.5
    hits = np.isin(result.candidates, wrong).sum()
    assert abs(hits - chance.sum()) < 3 * np.sqrt((chance * (1 - chance)).sum()) + 1
    counts, _, estimate = str(result).partition("; about ")
    assert counts == f"{len(result.rows)} suspect, {len(result.candidates)} candidate"
    parts = [int(part.split()[0]) for part in estimate.partition(": ")[2].split(", ")]
    assert sum(parts) == int(estimate.split()[0]) == round(result.expected)
    assert parts[:2] == [round(result.wrong[result.rows].sum()), round(chance.sum())]


def test_where_neighbours_say_nothing_there_are_no_candidates():
    rng = np.random.default_rng(0)
    result = suspect_labels(rng.normal(size=(200, 4)), rng.integers(0, 5, 200))
    assert result.information == 0
    assert result.listed == {}


def test_rows_that_are_hardly_ever_wrong_are_no_candidates():
    z, labels = np.repeat([0.0, 9.0], 50)[:, None], np.repeat([0, 1], 50)
    labels[3] = 1
    result = suspect_labels(z + np.random.default_rng(0).normal(size=(100, 2)), labels)
    assert (result.rows.tolist(), round(result.expected)) == (
        [3],
        2,
    )  # half of wrong ones are right
    assert result.candidates.tolist() == []


def test_of_many_rows_a_sample_with_its_share_of_each_class_is_judged_among_all():
    z, labels = lumps(classes=10, size=60)
    labels = np.minimum(labels, 7)  # the last class has three modes
    noisy, wrong = made_wrong(labels, 0.1)
    every, some = (suspect_labels(z, noisy, max_rows=most) for most in (None, 200))
    judged = np.flatnonzero(some.judged)
    assert (some.sampled, len(judged), every.sampled) == (200, 200, 600)
    expected = np.bincount(noisy) / 3
    assert np.abs(np.bincount(noisy[judged]) - expected).max() <= 1
    np.testing.assert_array_equal(some.neighbours[judged], every.neighbours[judged])
    assert set(some.ranking) == set(judged)
    assert np.isin(some.rows, wrong).mean() > 0.9
    assert abs(some.rate - 0.1) < 0.05
    assert some.expected == pytest.approx(some.rate * 200)
    assert str(some).endswith("; on a sample of 200 of 600 rows")
    assert "sample" not in str(every)


@pytest.mark.parametrize("share", [0.01, 0.02, 0.05])
@pytest.mark.parametrize("seed", [0, 1])
def test_few_wrong_labels_of_ten_classes_are_found(share, seed):
    # Many ambiguous digits once explained away the few that all neighbours contradict: 0 suspects.
    z, labels = load_digits(return_X_y=True)
    noisy, rows = made_wrong(labels, share, seed)
    suspects = suspect_labels(z, noisy)
    hits = np.isin(suspects.rows, rows).sum()
    assert hits >= 0.8 * len(rows)
    assert hits >= 0.6 * len(suspects.rows)
    assert 0.6 * len(rows) <= suspects.expected <= 1.6 * len(rows) + 5


def test_few_rows_of_clean_digits_are_suspect():
    assert len(suspect_labels(*load_digits(return_X_y=True)).rows) <= 0.005 * 1797
