import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import directed_hausdorff

from oracles import distance_matrix, labelled_sets, point_sets
from uncollapse.geometry import hausdorff, hausdorff_like, set_distance


def brute_hausdorff(a, b):
    d = distance_matrix(a, b)
    return max(d.min(axis=1).max(), d.min(axis=0).max())


@given(labelled_sets(), st.integers(0, 2**31), st.sampled_from([0.0, 1e-9, 1.0]))
def test_hausdorff_distances_equal_the_definitions(data, seed, size):
    x, labels = data
    y = x + size * np.random.default_rng(seed).normal(size=x.shape)
    # Coordinates near 100 carry an absolute rounding of 1e-14.
    close = {"rtol": 1e-9, "atol": 1e-13 * np.abs(x).max()}
    np.testing.assert_allclose(hausdorff(x, y[::-1]), brute_hausdorff(x, y), **close)
    per_class = max(brute_hausdorff(x[labels == c], y[labels == c]) for c in set(labels))
    np.testing.assert_allclose(hausdorff_like(x, y, labels), per_class, **close)
    moved = np.sqrt(((x - y) ** 2).sum(1)).max()
    assert hausdorff_like(x, y, labels) <= moved * (1 + 1e-9) + close["atol"]


def test_large_sets_agree_with_scipy():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2500, 6)), rng.normal(size=(1800, 6)) + 0.3
    truth = max(directed_hausdorff(a, b)[0], directed_hausdorff(b, a)[0])
    np.testing.assert_allclose(hausdorff(a, b), truth, rtol=1e-10)


def test_hausdorff_like_compares_sets_not_samples():
    x = np.array([[0.0], [1.0], [5.0]])
    swapped = x[[1, 0, 2]]
    assert hausdorff_like(x, swapped, [0, 0, 1]) == 0.0
    assert hausdorff_like(x, swapped, [0, 1, 1]) == 1.0


def test_bad_input_names_the_argument():
    with pytest.raises(ValueError, match=r"x_star: expected x's, \(2, 1\), got shape \(1, 1\)"):
        hausdorff_like([[0.0], [1.0]], [[0.0]], [0, 1])
    with pytest.raises(ValueError, match="b: expected 1 as in a"):
        hausdorff([[0.0]], [[0.0, 0.0]])
    with pytest.raises(ValueError, match="x_star"):
        hausdorff_like([[0.0]], [[np.inf]], [0])


@given(point_sets(max_dim=2), st.integers(1, 5), st.floats(-3, 3))
def test_set_distance_equals_the_definition(x, rows, shift):
    y = x[:rows][::-1] * 0.5 + shift
    truth = distance_matrix(x, y).min()  # its squares underflow below 1e-160
    np.testing.assert_allclose(set_distance(x, y), truth, rtol=1e-9, atol=1e-150)


def test_set_distance_of_large_sets_is_exact():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(3000, 8)) + 50, rng.normal(size=(900, 8)) + 52
    np.testing.assert_allclose(set_distance(a, b), distance_matrix(a, b).min(), rtol=1e-10)


def test_sets_of_different_widths_are_refused_by_name():
    with pytest.raises(ValueError, match="b: expected 1 as in a, got 2 columns"):
        set_distance([[0.0]], [[0.0, 1.0]])
