from __future__ import annotations

import math

import numpy as np
import pytest

from uncollapse._base.check import InputError
from uncollapse.metrics import lidar


def by_loops(views, delta=1e-4, eps=1e-8):
    """Equations (1) to (4) for views `[n, q, dim]`: covariances by loops, the root by eigh."""
    n, q, dim = views.shape
    means = views.mean(axis=1)
    between, within = np.zeros((dim, dim)), delta * np.eye(dim)
    for c in range(n):
        about = means[c] - means.mean(axis=0)
        between += np.outer(about, about) / n
        for row in views[c]:
            within += np.outer(row - means[c], row - means[c]) / (n * (q - 1))
    values, axes = np.linalg.eigh(within)
    root = axes @ np.diag(values**-0.5) @ axes.T
    found = np.clip(np.linalg.eigvalsh(root @ between @ root), 0, None)
    p = found / found.sum() + eps
    return float(np.exp(-(p * np.log(p)).sum()))


@pytest.mark.parametrize(("n", "dim"), [(12, 5), (4, 9)], ids=["many classes", "few classes"])
@pytest.mark.parametrize("delta", [1e-4, 1.0])
def test_it_is_that_of_its_equations(n, dim, delta):
    rng = np.random.default_rng(n)
    views = rng.normal(size=(n, 1, dim)) * np.linspace(2, 0.3, dim) + rng.normal(size=(n, 6, dim))
    order = rng.permutation(n * 6)
    x, labels = views.reshape(-1, dim)[order], np.repeat(np.arange(n), 6)[order]
    assert lidar(x, labels, delta=delta) == pytest.approx(by_loops(views, delta), rel=1e-7)
    assert lidar(x + 50, labels, delta=delta) == pytest.approx(lidar(x, labels, delta=delta))


def test_classes_that_are_points_have_the_rank_of_their_means():
    labels = np.repeat(np.arange(6), 3)
    assert lidar(np.eye(6)[labels], labels) == pytest.approx(5, rel=1e-5)
    assert lidar(1e-200 * np.eye(6)[labels], labels) == pytest.approx(5, rel=1e-5)
    assert lidar(1e200 * np.eye(6)[labels], labels) == pytest.approx(5, rel=1e-5)
    assert lidar(np.eye(6), np.arange(6), delta=0.0) == pytest.approx(5, rel=1e-5)


def test_noise_inside_classes_along_an_axis_takes_it_out_of_the_rank():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(8), 400)
    clean = rng.normal(size=(8, 2)) * 10
    x = clean[labels] + rng.normal(size=(3200, 2)) * [1e-2, 30.0]
    assert lidar(x, labels) < 1.1
    assert lidar(clean[labels] + 1e-2 * rng.normal(size=(3200, 2)), labels) > 1.5


def test_classes_of_one_row_tell_nothing_of_the_inside():
    rng = np.random.default_rng(1)
    views = rng.normal(size=(5, 4, 3)) + 2 * rng.normal(size=(5, 1, 3))
    x = np.concatenate([views.reshape(-1, 3), views.mean(axis=(0, 1), keepdims=True)[0]])
    labels = [*np.repeat(np.arange(5), 4), 9]
    # A class at the mean of the others scales their covariance alone.
    assert lidar(x, labels) == pytest.approx(by_loops(views), rel=1e-7)


def test_one_point_and_one_class_have_rank_0():
    assert lidar(np.full((9, 4), 0.1), np.arange(9) % 3) == 0.0
    assert lidar(np.random.default_rng(0).normal(size=(9, 4)), [0] * 9) == 0.0


@pytest.mark.parametrize("name", ["delta", "eps"])
def test_negative_constants_are_refused(name):
    with pytest.raises(InputError, match=f"{name}: expected"):
        lidar(np.eye(3), [0, 1, 2], **{name: -1.0})
    assert math.isfinite(lidar(np.eye(3), [0, 1, 2], **{name: 0.0}))
