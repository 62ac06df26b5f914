from __future__ import annotations

import math

import numpy as np
import pytest

from support.errors import refused
from uncollapse.metrics import NC2, nc1, nc2, nc3, nc4


def simplex(count, dim, seed=0):
    """Corners of a regular simplex about the origin, turned at random."""
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(dim, dim)))[0]
    return (np.eye(count, dim) - np.r_[np.full(count, 1 / count), np.zeros(dim - count)]) @ turn


def labelled(seed=0, count=4, dim=6, spread=0.5):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.r_[np.arange(count), rng.integers(0, count, 50)])
    return rng.normal(size=(count, dim))[labels] + spread * rng.normal(
        size=(len(labels), dim)
    ), labels


def means_by_loops(x, labels):
    means = np.array([x[labels == c].mean(axis=0) for c in np.unique(labels)])
    return means - means.mean(axis=0)


@pytest.mark.parametrize("count", [2, 3, 7])
def test_a_collapsed_simplex_is_all_of_neural_collapse(count):
    corners = simplex(count, 8)
    labels = np.repeat(np.arange(count), 5)
    x = 3.0 * corners[labels] + 17.0
    found = nc2(x, labels)
    assert nc1(x, labels) == pytest.approx(0, abs=1e-25)
    for value in (found.equinorm, found.equiangular, found.maximal_angle):
        assert value == pytest.approx(0, abs=1e-7)
    assert nc3(x, labels, 0.2 * corners) == pytest.approx(0, abs=1e-12)
    assert nc3(x, labels, -corners) == pytest.approx(4, rel=1e-9)
    assert nc4(x, labels, labels) == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_nc1_is_the_trace_of_the_authors_code_over_the_classes(seed):
    x, labels = labelled(seed)
    centred = means_by_loops(x, labels)
    within = np.zeros((6, 6))
    for row, label in zip(x, labels, strict=True):
        left = row - x[labels == label].mean(axis=0)
        within += np.outer(left, left) / len(x)
    between = centred.T @ centred / 4
    expected = np.trace(within @ np.linalg.pinv(between, rcond=1e-10)) / 4
    assert nc1(x, labels) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_nc2_is_that_of_loops_over_pairs(seed):
    x, labels = labelled(seed)
    means = means_by_loops(x, labels)
    norms = [math.sqrt(sum(v * v for v in mean)) for mean in means]
    cosines = [
        means[a] @ means[b] / norms[a] / norms[b] for a in range(4) for b in range(4) if a != b
    ]
    found = nc2(1e-170 * x, labels)
    assert found.equinorm == pytest.approx(np.std(norms, ddof=1) / np.mean(norms), rel=1e-9)
    assert found.equiangular == pytest.approx(np.std(cosines), rel=1e-9)
    assert found.maximal_angle == pytest.approx(
        np.mean(np.abs(np.array(cosines) + 1 / 3)), rel=1e-9
    )


def test_nc2_of_means_on_a_cross_is_known():
    # Cosines 0 (eight ordered pairs) and -1 (four); the simplex would have -1/3.
    x = np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]])
    found = nc2(x, range(4))
    assert found == NC2(0.0, pytest.approx(math.sqrt(2) / 3), pytest.approx(4 / 9))


def test_nc2_of_many_classes_is_the_same_in_blocks(monkeypatch):
    x, labels = labelled(1, count=30, dim=12)
    whole = nc2(x, labels)
    monkeypatch.setattr("uncollapse.metrics.collapse._TABLE", 70)
    parts = nc2(x, labels)
    assert parts.maximal_angle == pytest.approx(whole.maximal_angle, rel=1e-12)
    assert parts.equiangular == pytest.approx(whole.equiangular, rel=1e-12)


def test_nc3_is_the_distance_of_the_authors_code():
    x, labels = labelled()
    weight = np.random.default_rng(1).normal(size=(4, 6))
    means = means_by_loops(x, labels)
    gap = weight / np.linalg.norm(weight, "fro") - means / np.linalg.norm(means, "fro")
    for scale in (1.0, 1e-200, 1e200):
        assert nc3(x, labels, weight * scale) == pytest.approx((gap**2).sum(), rel=1e-9)


def test_nc4_counts_rows_whose_nearest_mean_is_another(monkeypatch):
    x, labels = labelled(spread=2.0)
    predictions = np.random.default_rng(2).integers(0, 4, len(x))
    means = [x[labels == c].mean(axis=0) for c in range(4)]
    wrong = sum(
        int(np.argmin([np.linalg.norm(row - mean) for mean in means])) != said
        for row, said in zip(x, predictions, strict=True)
    )
    assert nc4(x, labels, predictions) == pytest.approx(wrong / len(x))
    monkeypatch.setattr("uncollapse.metrics.collapse._TABLE", 20)
    assert nc4(x, labels, predictions) == pytest.approx(wrong / len(x))


def test_nc4_knows_predictions_by_their_label():
    x = [[0.0], [1.0], [4.0], [5.0]]
    assert nc4(x, list("aabb"), list("aaba")) == 0.25
    assert nc4(x, list("aabb"), list("aabz")) == 0.25  # z has no mean
    with refused("predictions"):
        nc4(x, list("aabb"), [0, 0, 1, 1])
    with refused("predictions"):
        nc4(x, list("aabb"), ["a"])


def test_rows_that_are_one_point_have_the_values_that_are_documented():
    x, labels = np.full((12, 3), 0.1), np.arange(12) % 3
    assert nc1(x, labels) == math.inf
    assert all(math.isnan(v) for v in vars(nc2(x, labels)).values())
    assert math.isnan(nc3(x, labels, np.eye(3)))
    assert nc4(x, labels, labels) == 1.0
    assert nc4(x, [0] * 12, [0] * 12) == 0.0


def test_a_weight_of_another_shape_is_refused():
    x, labels = labelled()
    with refused("weight"):
        nc3(x, labels, np.ones((6, 4)))
    assert math.isnan(nc3(x, labels, np.zeros((4, 6))))
