"""The batch linter, and the chance that an anchor meets its own mode (EPS Fig. 3b)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.errors import refused
from uncollapse._base.check import InputError
from uncollapse.samplers import PKSampler, UniformBatchSampler, check_batches, mode_chance


def test_the_report_counts_what_is_in_the_batches():
    labels, fine = [0, 0, 0, 1, 1, 2], [0, 0, 1, 0, 0, 0]
    batches = [[0, 1, 3], [0, 2], [3, 5], [0, 1, 2, 5], [3, 3, 5]]
    report = check_batches(batches, labels, n=5, fine_labels=fine)
    assert report.batches == 5
    assert report.size == (2, 4)
    assert report.classes == (1, 2)
    assert report.single_class == 1
    assert report.all_alone == 1
    assert report.repeated == 1
    assert report.without_positive == pytest.approx(5 / 14)
    assert report.without_negative == pytest.approx(2 / 14)
    assert report.positives == pytest.approx(
        (1 + 1 + 0 + 1 + 1 + 0 + 0 + 2 * 3 + 0 + 1 + 1 + 0) / 14
    )
    # Anchors with positives: 0, 1 | 0, 2 | 0, 1, 2 | 3, 3; of these 0, 1 | | 0, 1 | 3, 3 meet one.
    assert report.mode_share == pytest.approx(6 / 9)
    assert len(report.problems) == 4


def test_the_table_ends_with_the_problems():
    report = check_batches([[0, 1]], [0, 0], n=1)
    lines = str(report).splitlines()
    assert lines[0].split() == ["batches", "looked", "at", "1"]
    assert lines[-1] == "! 1 of 1 batches have one class: no negatives"
    good = check_batches(PKSampler([0, 0, 1, 1], 2, 2, seed=0), [0, 0, 1, 1])
    assert good.problems == []
    assert "!" not in str(good)


def test_a_rare_mode_is_a_problem():
    labels, fine = np.zeros(40, int), np.arange(40) // 2
    labels[20:] = 1
    report = check_batches(PKSampler(labels, 2, 3, seed=0), labels, fine_labels=fine)
    assert "raise k" in report.problems[-1]


def test_the_sampler_is_left_as_it_was():
    sampler = UniformBatchSampler(12, 3, seed=0)
    iterator = iter(sampler)
    next(iterator)
    state = sampler.state_dict()
    check_batches(sampler, np.arange(12) // 2, n=50)
    assert sampler.state_dict() == state


def test_several_epochs_are_drawn_when_one_is_short():
    assert check_batches(UniformBatchSampler(4, 2, seed=0), [0, 0, 1, 1], n=9).batches == 9
    with refused("sampler"):
        check_batches([], [0, 0], n=1)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 999), k=st.integers(2, 6))
def test_the_chance_is_what_batches_show(seed, k):
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(4), 8)
    fine = rng.integers(0, 4, 32)
    sampler = PKSampler(labels, 4, k, seed, batches=400)
    share = check_batches(sampler, labels, n=400, fine_labels=fine).mode_share
    assert share == pytest.approx(mode_chance(labels, fine, k), abs=0.06)


def test_the_chance_grows_with_k_up_to_the_whole_class():
    labels, fine = [0] * 6 + [1] * 3, [0, 0, 1, 1, 2, 2, 0, 1, 2]
    chances = [mode_chance(labels, fine, k) for k in range(2, 8)]
    assert chances == sorted(chances)
    assert chances[0] == pytest.approx((1 / 5 + 0) / 2)
    assert chances[-1] == pytest.approx((1 + 0) / 2)
    with pytest.raises(InputError, match="labels"):
        mode_chance([0, 1], [0, 0], 2)
