from __future__ import annotations

import math

import numpy as np
import pytest

from uncollapse._base.check import InputError
from uncollapse.metrics import alignment, anisotropy, uniformity


def rows(seed=0, n=40, dim=5):
    return np.random.default_rng(seed).normal(size=(n, dim)) + 0.3


def sphere(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def pairs(n):
    return [(i, j) for i in range(n) for j in range(i + 1, n)]


def test_alignment_is_the_mean_over_positive_pairs():
    x, labels = rows(), np.random.default_rng(1).integers(0, 5, 40)
    u = sphere(x)
    kept = [(i, j) for i, j in pairs(40) if labels[i] == labels[j]]
    expected = np.mean([np.linalg.norm(u[i] - u[j]) ** 2 for i, j in kept])
    for scale in (1.0, 1e-200, 1e200):
        assert alignment(scale * x, labels) == pytest.approx(expected, rel=1e-9)


def test_alignment_of_two_views_is_that_of_the_authors_code():
    a, b = rows(0), rows(1)
    expected = ((sphere(a) - sphere(b)) ** 2).sum(axis=1).mean()
    both = np.concatenate([a, b])
    assert alignment(both, [*range(40), *range(40)]) == pytest.approx(expected, rel=1e-12)


def test_alignment_keeps_its_digits_near_collapse():
    x = np.array([[1.0, 0.0], [1.0, 1e-9]])
    assert alignment(x, [0, 0]) == pytest.approx(1e-18, rel=1e-6)


@pytest.mark.parametrize("t", [0.5, 2.0, 2000.0])
def test_uniformity_is_the_log_of_the_mean_over_pairs(t):
    u = sphere(rows())
    logs = [-t * float(((u[i] - u[j]) ** 2).sum()) for i, j in pairs(40)]
    top = max(logs)
    expected = top + math.log(sum(math.exp(v - top) for v in logs) / len(logs))
    assert uniformity(7e180 * u, t=t) == pytest.approx(expected, rel=1e-9)


def test_uniformity_of_a_sphere_of_many_dimensions_is_nearly_minus_4():
    found = uniformity(np.random.default_rng(0).normal(size=(400, 512)))
    assert found == pytest.approx(-4 + 8 / 512, abs=0.01)  # exp(-4 + 4c), c of variance 1/512


def test_blocks_do_not_change_a_figure(monkeypatch):
    x = rows(n=31)
    whole = uniformity(x)
    monkeypatch.setattr("uncollapse.metrics.collapse._BLOCK", 6)
    assert uniformity(x) == pytest.approx(whole, rel=1e-12)


def test_anisotropy_is_that_of_all_pairs():
    x = rows()
    u = sphere(x)
    cosines = [float(u[i] @ u[j]) for i, j in pairs(40)]
    found = anisotropy(1e-200 * x)
    assert found.mean == pytest.approx(np.mean(cosines), abs=1e-12)
    levels = (0.05, 0.25, 0.5, 0.75, 0.95)
    expected = {level: np.quantile(cosines, level) for level in levels}
    assert found.quantiles == pytest.approx(expected, abs=1e-12)


def test_anisotropy_of_a_cone_is_right_to_what_is_missing_to_1():
    x = np.c_[np.ones(300), 1e-5 * np.random.default_rng(0).normal(size=(300, 50))]
    u = x[:, 1:] - x[:, 1:].mean(axis=0)
    found = anisotropy(x)
    assert 1 - found.mean == pytest.approx((u**2).sum() / 299, rel=1e-4)
    assert 0 < 1 - found.quantiles[0.95] < 1 - found.quantiles[0.05] < 2e-8


def test_directions_all_round_have_no_anisotropy():
    x = np.random.default_rng(0).normal(size=(3000, 32))
    assert anisotropy(x, sample=200).mean == pytest.approx(0, abs=1e-3)


def test_a_row_of_zeros_has_cosine_0():
    found = anisotropy([[1.0, 0.0], [2.0, 0.0], [0.0, 0.0]], quantiles=(0.0, 1.0))
    assert found.mean == pytest.approx(1 / 3)
    assert found.quantiles == {0.0: 0.0, 1.0: 1.0}
    assert anisotropy(np.zeros((4, 2))).mean == 0.0


def test_a_sample_is_one_of_the_rows_chosen_by_the_seed():
    x = rows(n=300)
    some = uniformity(x, sample=100, seed=3)
    assert some == uniformity(x, sample=100, seed=3) != uniformity(x, sample=100, seed=4)
    assert some == pytest.approx(uniformity(x), abs=0.3)
    assert uniformity(x, sample=300) == uniformity(x, sample=None)
    assert anisotropy(x, sample=100).mean == anisotropy(x).mean  # of all rows, always


def test_one_point_has_the_values_that_are_documented():
    x, labels = np.full((30, 3), 0.1), np.arange(30) % 3
    assert (alignment(x, labels), uniformity(x)) == (0.0, 0.0)
    found = anisotropy(x)
    assert found.mean == 1.0
    assert set(found.quantiles.values()) == {1.0}
    assert math.isnan(alignment(x, np.arange(30)))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: uniformity([[1.0]]), "at least 2 rows"),
        (lambda: anisotropy([[1.0]]), "at least 2 rows"),
        (lambda: uniformity(rows(), t=-1), "t: expected"),
        (lambda: uniformity(rows(), sample=1), "sample: expected"),
        (lambda: anisotropy(rows(), quantiles=[1.5]), "quantiles: expected"),
        (lambda: anisotropy(rows(), quantiles=0.5), "quantiles: expected"),
        (lambda: alignment(rows(), [0, 1]), "labels: expected 40"),
    ],
)
def test_what_cannot_be_used_is_said(call, words):
    with pytest.raises(InputError, match=words):
        call()
