from __future__ import annotations

import numpy as np
import pytest

from uncollapse.metrics import modes_per_class


def lumps(seed, m, dim, per=40, apart=None):
    """m Gaussian lumps, all at the same distance from each other (on a circle in the plane)."""
    rng = np.random.default_rng(seed)
    apart = 8 + 1.5 * np.sqrt(dim) if apart is None else apart
    if dim == 2:
        angle = 2 * np.pi * np.arange(m) / m
        radius = apart / 2 / np.sin(np.pi / max(m, 2))
        middles = radius * np.c_[np.cos(angle), np.sin(angle)]
    else:
        middles = np.linalg.qr(rng.normal(size=(dim, m)))[0].T * apart / np.sqrt(2)
    return np.repeat(middles, per, axis=0) + rng.normal(size=(m * per, dim))


@pytest.mark.parametrize("dim", [2, 8, 32, 128])
@pytest.mark.parametrize("size", [12, 60, 250])
def test_one_gaussian_lump_is_one_mode(dim, size):
    x = np.random.default_rng(dim + size).normal(size=(6 * size, dim))
    assert modes_per_class(x, np.repeat(np.arange(6), size)).modes.tolist() == [1.0] * 6


@pytest.mark.slow
@pytest.mark.parametrize("dim", [2, 8, 32, 128])
@pytest.mark.parametrize("m", [2, 3, 5])
def test_lumps_that_are_apart_are_counted(dim, m):
    x = np.concatenate([lumps(seed, m, dim) for seed in range(4)])
    labels = np.repeat(np.arange(4), m * 40)
    assert modes_per_class(x, labels).modes.tolist() == [float(m)] * 4


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["uniform", "heavy tails", "on a sphere", "skewed", "a cigar"])
@pytest.mark.parametrize("dim", [2, 32])
def test_a_single_lump_of_another_shape_is_one_mode(shape, dim):
    rng = np.random.default_rng(0)
    normal = rng.normal(size=(300, dim))
    sphere = normal + 4 * np.eye(dim)[0]
    x = {
        "uniform": rng.uniform(size=(300, dim)),
        "heavy tails": rng.standard_t(5, size=(300, dim)),
        "on a sphere": sphere / np.linalg.norm(sphere, axis=1, keepdims=True),
        "skewed": np.exp(normal / 2),
        "a cigar": normal * np.r_[20, np.ones(dim - 1)],
    }[shape]
    assert modes_per_class(x, np.repeat([0, 1, 2], 100)).modes.tolist() == [1.0] * 3


def test_the_number_of_modes_does_not_depend_on_scale_or_place():
    x = lumps(0, 3, 8)
    labels = np.zeros(len(x), int)
    for moved in (x, 1e-6 * x + 1, 1e6 * x):
        assert modes_per_class(moved, labels).modes.tolist() == [3.0]


def test_a_few_stray_points_are_no_mode():
    x = np.concatenate([np.random.default_rng(0).normal(size=(100, 4)), np.full((2, 4), 50.0)])
    assert modes_per_class(x, [0] * 102).modes.tolist() == [1.0]


def test_a_collapsed_class_has_one_mode_and_a_tiny_class_is_unknown():
    result = modes_per_class(np.zeros((27, 3)), [0] * 20 + [1] * 7)
    assert result.modes[0] == 1.0
    assert np.isnan(result.modes[1])
    assert result.to_dict()["classes_unknown"] == 1


def test_fine_classes_apart_are_modes_and_merged_ones_are_one():
    rng = np.random.default_rng(0)
    fine = np.tile(np.repeat(np.arange(4), 25), 3)
    labels = np.repeat(np.arange(3), 100)
    middles = np.zeros((3, 4, 2))
    middles[0] = [[0, 0], [50, 0], [0, 50], [50, 50]]  # four apart
    middles[1] = [[0, 0], [50, 0], [0, 0], [0, 0]]  # one apart, three merged
    x = middles[labels, fine] + rng.normal(size=(300, 2))
    result = modes_per_class(x, labels, fine)
    assert result.modes.tolist() == [4.0, 2.0, 1.0]
    assert result.separation[0] == 1.0
    assert result.separation[2] < 0.2


def test_exact_collapse_keeps_one_mode_whatever_the_fine_labels():
    result = modes_per_class(np.ones((40, 3)), [0] * 40, np.arange(40) % 4)
    assert result.modes.tolist() == [1.0]
    assert result.separation.tolist() == [0.0]


def test_fine_classes_of_one_sample_are_left_out():
    result = modes_per_class([[0.0], [0.1], [9.0], [9.1], [30.0]], [0] * 5, list("aabbc"))
    assert (result.fine_classes.tolist(), result.modes.tolist()) == ([2], [2.0])
    alone = modes_per_class([[0.0], [1.0]], [0, 0], ["a", "b"])
    assert np.isnan(alone.modes).all()
