"""Verification against scikit-learn, loops over all pairs, and cases computed by hand."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

from support.errors import refuses
from uncollapse._base.check import InputError
from uncollapse.metrics import verification_scores
from uncollapse.metrics.verification_scores import verification

SCORES = st.lists(st.tuples(st.integers(-6, 6), st.booleans()), min_size=4, max_size=60).filter(
    lambda rows: len({same for _, same in rows}) == 2
)


def equal_error_by_definition(scores, same):
    """Where far = 1 - tar on the polyline of scikit-learn's curve."""
    far, tar, _ = roc_curve(same, scores, drop_intermediate=False)
    for i in range(1, len(far)):
        before, after = far[i - 1] + tar[i - 1] - 1, far[i] + tar[i] - 1
        if after >= 0:
            share = -before / (after - before)
            return far[i - 1] + share * (far[i] - far[i - 1])
    raise AssertionError


def all_pairs(x, labels):
    pairs = np.array(list(combinations(range(len(x)), 2)))
    distance = np.linalg.norm(x[pairs[:, 0]] - x[pairs[:, 1]], axis=1)
    return pairs, distance, labels[pairs[:, 0]] == labels[pairs[:, 1]]


@given(SCORES)
def test_area_curve_and_equal_error_are_scikit_learns_with_ties(rows):
    scores, same = np.array([s for s, _ in rows]), np.array([t for _, t in rows])
    result = verification(scores=scores, same=same)
    assert result.auc == pytest.approx(roc_auc_score(same, scores), abs=1e-12)
    assert result.eer == pytest.approx(equal_error_by_definition(scores, same), abs=1e-12)
    far, tar, thresholds = roc_curve(same, scores, drop_intermediate=False)
    ours = np.interp(far, result.roc.far, result.roc.tar)
    upright = np.r_[False, np.diff(far) == 0] | np.r_[np.diff(far) == 0, False]
    np.testing.assert_allclose(ours[~upright], tar[~upright], atol=1e-12)
    best = max(((scores >= t) == same).mean() for t in thresholds)
    assert result.accuracy == pytest.approx(best, abs=1e-12)
    accepted = scores >= result.accuracy_threshold
    assert (accepted == same).mean() == pytest.approx(result.accuracy, abs=1e-12)


@given(SCORES, st.sampled_from([0.05, 0.1, 0.25, 0.5]))
def test_tar_at_far_is_the_best_of_all_thresholds_and_is_reached_at_the_one_given(rows, rate):
    scores, same = np.array([s for s, _ in rows]), np.array([t for _, t in rows])
    result = verification(scores=scores, same=same, far=[rate])
    negatives = int((~same).sum())
    if rate * negatives < 1:
        assert result.tar[rate] is None
        assert result.thresholds[rate] is None
        return
    tries = [np.inf, *scores]
    allowed = [t for t in tries if (scores[~same] >= t).mean() <= rate + 1e-12]
    assert result.tar[rate] == pytest.approx(max((scores[same] >= t).mean() for t in allowed))
    at = result.thresholds[rate]
    assert (scores[same] >= at).mean() == pytest.approx(result.tar[rate])
    assert (scores[~same] >= at).mean() <= rate + 1e-12


def test_scores_that_are_all_equal_are_chance():
    result = verification(scores=[1.0] * 20, same=[True, False] * 10, far=[0.1])
    assert (result.auc, result.eer, result.accuracy) == (0.5, 0.5, 0.5)
    assert (result.tar[0.1], result.thresholds[0.1]) == (0.0, math.inf)
    few = verification(scores=[2.0, 1.0, 0.0], same=[1, 1, 0]).to_dict()
    assert few["tar@0.1"] is None
    assert len(result.roc.far) == 2


@pytest.mark.parametrize("normalize", [False, True], ids=["euclidean", "cosine"])
@pytest.mark.parametrize("tile", [8, 1 << 22], ids=["many tiles", "one tile"])
def test_all_pairs_are_those_of_a_list_of_them(monkeypatch, normalize, tile):
    monkeypatch.setattr(verification_scores, "_TILE", tile)
    rng = np.random.default_rng(0)
    labels = np.array(["b", "a", "c", "d"])[rng.integers(0, 4, 40)]
    labels[7] = "alone"
    x = rng.normal(size=(40, 3)) + 5 + (labels == "a")[:, None]
    far = (0.2, 0.05, 1e-2, 1e-3)
    result = verification(x, labels, normalize=normalize, far=far, progress=False)
    shown = x / np.linalg.norm(x, axis=1, keepdims=True) if normalize else x
    pairs, distance, same = all_pairs(shown, labels)
    by_list = verification(x, pairs=pairs, labels=labels, normalize=normalize, far=far)
    by_score = verification(scores=-distance, same=same, far=far)
    for name in ("auc", "eer", "accuracy", "same", "different"):
        assert getattr(result, name) == pytest.approx(getattr(by_score, name), abs=1e-12)
        assert getattr(by_list, name) == pytest.approx(getattr(by_score, name), abs=1e-12)
    for rate in far:
        assert result.tar[rate] == by_score.tar[rate] == by_list.tar[rate]
    assert result.exact
    unit = "cosine" if normalize else "distance"
    assert result.unit == by_list.unit == unit
    at = -by_score.thresholds[0.2]
    expected = 1 - at**2 / 2 if normalize else at
    assert result.thresholds[0.2] == pytest.approx(expected, rel=1e-9)
    assert result.auc == pytest.approx(roc_auc_score(same, -distance), abs=1e-12)


def test_pairs_on_a_grid_far_from_the_origin_are_tied():
    side = np.stack(np.meshgrid(*[np.arange(4.0)] * 2), -1).reshape(-1, 2)
    x, labels = side + 1000, np.arange(16) % 3
    _, distance, same = all_pairs(side, labels)
    result = verification(x, labels, far=[0.1], progress=False)
    squares = np.round(distance**2)
    assert result.thresholds_tried == len(np.unique(squares[same]))
    assert result.auc == pytest.approx(roc_auc_score(same, -squares), abs=1e-12)


def test_a_point_collapse_is_chance_and_a_tiny_scale_is_none():
    labels = np.repeat([0, 1], 6)
    assert verification(np.ones((12, 3)), labels, progress=False).auc == 0.5
    x = np.random.default_rng(1).normal(size=(12, 3)) + labels[:, None]
    small = verification(x * 2.0**-600, labels, progress=False)
    assert small.auc == pytest.approx(verification(x, labels, progress=False).auc, abs=1e-12)


def test_beyond_the_limit_counts_are_exact_at_fewer_thresholds(monkeypatch):
    rng = np.random.default_rng(2)
    labels = np.repeat(np.arange(3), 60)
    x = rng.normal(size=(180, 4)) + 1.5 * np.eye(4)[labels]
    whole = verification(x, labels, far=[0.1, 0.01], progress=False)
    monkeypatch.setattr(verification_scores, "_ALL_BELOW", 100)
    monkeypatch.setattr(verification_scores, "_GRID", 2000)
    part = verification(x, labels, far=[0.1, 0.01], progress=False)
    assert (whole.exact, part.exact) == (True, False)
    assert part.thresholds_tried < whole.thresholds_tried
    _, distance, same = all_pairs(x, labels)
    for rate, at in part.thresholds.items():
        assert part.tar[rate] == pytest.approx((distance[same] <= at * (1 + 1e-9)).mean())
        assert whole.tar[rate] - 5e-3 < part.tar[rate] <= whole.tar[rate]
    assert part.auc == pytest.approx(whole.auc, abs=1e-3)
    assert part.eer == pytest.approx(whole.eer, abs=1e-3)


def test_the_accuracy_of_a_fold_is_that_of_the_others_threshold():
    scores = np.array([3.0, 2.0, 0.0, 1.0, 9.0, 8.0, 2.5, 2.6])
    same = np.array([1, 1, 0, 0, 1, 1, 0, 0], bool)
    result = verification(scores=scores, same=same, folds=[0, 0, 0, 0, 1, 1, 1, 1])
    # Fold 0 is judged at 8.0 (best on fold 1): both same pairs lost. Fold 1 at 2.0: both accepted.
    assert result.folds == (0.5, 0.5)
    assert result.fold_accuracy == 0.5
    assert verification(scores=scores, same=same, folds=2).folds == (0.5, 0.5)
    rng = np.random.default_rng(0)
    same = np.tile([True, False], 300)
    scores = rng.normal(size=600) + same
    ten = verification(scores=scores, same=same, folds=10)
    expected = np.std(ten.folds, ddof=1) / np.sqrt(10)
    assert ten.fold_standard_error == pytest.approx(expected)
    assert ten.fold_accuracy <= ten.accuracy


@pytest.mark.parametrize("seed", range(3))
def test_the_accuracies_of_folds_are_those_of_a_loop_over_thresholds(seed):
    rng = np.random.default_rng(seed)
    same, folds = rng.random(60) < 0.5, rng.permutation(np.arange(60) % 5)
    scores = rng.normal(size=60) + same
    result = verification(scores=scores, same=same, folds=folds)
    for fold, accuracy in enumerate(result.folds):
        own = folds == fold
        right = {t: ((scores >= t) == same)[~own].sum() for t in [np.inf, *scores[~own]]}
        likeliest = [t for t, count in right.items() if count == max(right.values())]
        assert accuracy in [((scores >= t) == same)[own].mean() for t in likeliest]
    assert len(result.folds) == 5
    assert result.fold_accuracy == pytest.approx(np.mean(result.folds))


def test_intervals_hold_their_values_and_delong_agrees_with_its_definition():
    rng = np.random.default_rng(3)
    same = rng.random(200) < 0.4
    scores = np.round(rng.normal(size=200) + same, 1)
    result = verification(scores=scores, same=same, far=[0.1])
    for name, interval in result.intervals.items():
        assert interval.low <= interval.value <= interval.high, name
        assert interval.value == result.to_dict()[name]
    p, n = scores[same], scores[~same]
    wins = (p[:, None] > n) + 0.5 * (p[:, None] == n)
    variance = wins.mean(1).var(ddof=1) / len(p) + wins.mean(0).var(ddof=1) / len(n)
    area = wins.mean()
    half = 1.959963984540054 * math.sqrt(variance) / (area * (1 - area))
    low = 1 / (1 + math.exp(-(math.log(area / (1 - area)) - half)))
    assert result.intervals["auc"].low == pytest.approx(low, abs=1e-12)


def test_the_intervals_of_all_pairs_are_over_classes():
    rng = np.random.default_rng(4)
    labels = np.repeat(np.arange(12), 8)
    x = rng.normal(size=(96, 4)) + 2 * rng.normal(size=(12, 4))[labels]
    result = verification(x, labels, far=[0.1], progress=False)
    assert set(result.intervals) == {"auc", "tar@0.1"}
    assert result.intervals["auc"].units == 12
    for name, interval in result.intervals.items():
        assert interval.value == pytest.approx(result.to_dict()[name], abs=1e-12)
        assert interval.low < interval.value < interval.high


def test_wrong_arguments_are_refused_by_name():
    x, two = {"embeddings": np.eye(3)}, {"scores": [1.0, 2.0], "same": [1, 0]}
    refuses(verification, {}, embeddings=[None])
    refuses(verification, x, labels=[None, [0, 1, 2], [0, 0, 0]])
    refuses(verification, two, same=[None, [1, 1], [3, 0]], scores=[[1.0, np.nan]], far=[[0.0]])
    refuses(verification, two, folds=[2])
    refuses(verification, x | {"same": [1]}, pairs=[[[0, 3]], [[1, 1]], [0, 1]])
    refuses(verification, x | {"pairs": [[0, 1]]}, same=[None])
    for options in (x | two, x | {"labels": [0, 0, 1], "folds": 3}):
        with pytest.raises(InputError):
            verification(**options)
