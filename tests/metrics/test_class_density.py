from __future__ import annotations

import math

import numpy as np
import pytest

from uncollapse.metrics import pi_ratio


def cosine_distance(a, b):
    return 1 - a @ b / math.sqrt((a @ a) * (b @ b))


def mean_pair(rows):
    gaps = [cosine_distance(a, b) for i, a in enumerate(rows) for j, b in enumerate(rows) if i != j]
    return float(np.mean(gaps))


@pytest.mark.parametrize("seed", range(3))
def test_it_is_that_of_loops_over_pairs_and_class_means(seed):
    rng = np.random.default_rng(seed)
    labels = np.r_[np.arange(4).repeat(2), rng.integers(0, 4, 30)]
    x = rng.normal(size=(len(labels), 5)) + rng.normal(size=(4, 5))[labels]
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    classes = [x[labels == c] for c in range(4)]
    intra = np.mean([mean_pair(rows) for rows in classes])
    inter = mean_pair([rows.mean(axis=0) for rows in classes])
    for scale in (1.0, 1e-200, 1e200):
        found = pi_ratio(scale * x, labels)
        assert found.intra == pytest.approx(intra, rel=1e-10)
        assert found.inter == pytest.approx(inter, rel=1e-10)
        assert found.ratio == pytest.approx(intra / inter, rel=1e-10)


def test_a_cone_keeps_its_ratio_to_the_last_digits():
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 6
    inside = rng.normal(size=(60, 4)) + 3 * rng.normal(size=(6, 4))[labels]
    tight = [pi_ratio(np.c_[np.ones(60), spread * inside], labels) for spread in (1e-3, 1e-6)]
    assert tight[1].intra == pytest.approx(1e-6 * tight[0].intra, rel=1e-3)
    assert tight[1].ratio == pytest.approx(tight[0].ratio, rel=1e-3)


def test_one_point_has_no_ratio():
    found = pi_ratio(np.full((12, 3), 0.1), np.arange(12) % 3)
    assert (found.intra, found.inter) == (0.0, 0.0)
    assert math.isnan(found.ratio)


def test_classes_with_one_mean_have_an_infinite_ratio():
    assert pi_ratio([[1.0, 1.0], [1.0, -1.0]] * 2, [0, 0, 1, 1]).ratio == math.inf


def test_one_class_has_no_inter_and_lone_rows_no_intra():
    one = pi_ratio([[1.0, 0.0], [0.0, 1.0]], [0, 0])
    assert (one.intra, math.isnan(one.inter), math.isnan(one.ratio)) == (1.0, True, True)
    lone = pi_ratio([[1.0, 0.0], [0.0, 1.0]], [0, 1])
    assert (math.isnan(lone.intra), lone.inter, math.isnan(lone.ratio)) == (True, 1.0, True)
    some = pi_ratio([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], [0, 0, 1])
    assert some.intra == 1.0  # the lone row is left out
