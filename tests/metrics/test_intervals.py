import inspect
from itertools import product

import numpy as np
import pytest
from scipy import stats

from support.errors import refuses
from uncollapse.metrics import compare_seeds, confidence, over_seeds, reid, retrieval


def test_intervals_agree_with_scipy():
    values = np.random.default_rng(0).exponential(size=60)
    ours = confidence(values, resamples=9000)
    known = inspect.signature(stats.bootstrap).parameters
    drawn = {"rng" if "rng" in known else "random_state": np.random.default_rng(0)}  # before 1.15
    theirs = stats.bootstrap(
        (values,), np.mean, n_resamples=9000, method="percentile", **drawn
    ).confidence_interval
    # The same draws in the same order: equal, not only near.
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), rel=1e-9)


def test_drawing_whole_classes_widens_the_interval_when_queries_of_a_class_agree():
    groups = np.repeat(np.arange(20), 30)
    values = np.repeat(np.random.default_rng(0).integers(0, 2, 20), 30).astype(float)
    single, whole = confidence(values), confidence(values, groups=groups)
    assert whole.units == 20
    assert whole.value == pytest.approx(single.value)
    assert whole.high - whole.low > 3 * (single.high - single.low)


def test_a_result_gives_its_queries_and_leaves_out_those_without_a_match():
    x = np.random.default_rng(0).normal(size=(41, 3))
    labels = np.r_[np.arange(40) % 5, 99]
    result = retrieval(x, labels)
    interval = confidence(result, "recall@1")
    assert interval.value == pytest.approx(result.recall[1])
    assert interval.units == 40
    assert confidence(result, "recall@1", groups=labels).units == 5
    people = reid(x[:5], [1, 2, 3, 4, 5], [0] * 5, x[5:], np.arange(36) % 6 + 1, [1] * 36)
    assert confidence(people, "mAP").value == pytest.approx(people.map)


def test_the_seed_decides_and_a_constant_has_no_width():
    values = np.random.default_rng(0).normal(size=30)
    assert confidence(values, seed=1) == confidence(values, seed=1)
    assert confidence(values, seed=1) != confidence(values, seed=2)
    flat = confidence([2.0] * 9)
    assert (flat.low, flat.value, flat.high) == (2.0, 2.0, 2.0)


@pytest.mark.parametrize("seed", range(5))
def test_the_sign_flip_test_equals_a_loop_over_all_signs(seed):
    rng = np.random.default_rng(seed)
    a, b = np.round(rng.normal(size=(2, 7)), 1)
    d = a - b
    far = [abs(np.dot(s, d)) >= abs(d.sum()) - 1e-9 for s in product((-1, 1), repeat=7)]
    result = compare_seeds(a, b)
    assert result.test == "exact sign-flip"
    assert result.p_value == pytest.approx(np.mean(far))
    assert result.first.std == pytest.approx(np.std(a, ddof=1))


def test_many_seeds_use_the_paired_t_test_of_scipy():
    a, b = np.random.default_rng(0).normal(size=(2, 20))
    result = compare_seeds(a, b + 0.3)
    assert result.test == "paired t"
    assert result.p_value == pytest.approx(stats.ttest_rel(a, b + 0.3).pvalue)
    assert compare_seeds(a, a).p_value == 1.0
    assert compare_seeds(np.arange(20.0), np.arange(20.0) + 1).p_value == 0.0


def test_wrong_arguments_are_refused_by_name():
    refuses(confidence, {"values": [1.0]}, values=[[[1.0]], [np.nan]], level=[2], metric=["mrr"])
    refuses(confidence, {"values": retrieval([[0.0]], [1])}, metric=["best"])
    refuses(over_seeds, {}, values=[[1.0], ["a", "b"]])
    refuses(compare_seeds, {"first": [1.0, 2.0]}, second=[[1.0, np.inf], [1.0, 2.0, 3.0]])
