import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import directed_hausdorff

from support.errors import refuses
from support.oracles import distance_matrix, hausdorff_distance, labelled_sets, point_sets
from uncollapse import geometry


@given(point_sets(), st.integers(0, 2**31))
def test_isometric_error_equals_the_definition(x, seed):
    y = x + np.random.default_rng(seed).normal(size=x.shape)
    truth = np.abs(distance_matrix(x) - distance_matrix(y)).max()
    close = {"rtol": 1e-9, "atol": 1e-12 * np.abs(x).max()}
    np.testing.assert_allclose(geometry.isometric_error(x, y), truth, **close)


def test_isometric_error_of_a_large_set_is_exact():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1100, 4))
    y = x + 0.1 * rng.normal(size=x.shape)
    truth = np.abs(distance_matrix(x) - distance_matrix(y)).max()
    np.testing.assert_allclose(geometry.isometric_error(x, y), truth, rtol=1e-10)


def rotation(dim, rng):
    return np.linalg.qr(rng.normal(size=(dim, dim)))[0]


@pytest.mark.parametrize("norm", ["sup", "l2"])
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_an_isometry_is_recovered_even_far_from_the_origin(norm, dim):
    rng = np.random.default_rng(dim)
    x = rng.normal(size=(12, dim)) + 1e3
    turn, shift = rotation(dim, rng), rng.normal(size=dim)
    result = geometry.best_isometry(x, x @ turn.T + shift, norm)
    assert result.error < 1e-9
    np.testing.assert_allclose(result(x), x @ turn.T + shift, atol=1e-8)
    np.testing.assert_allclose(result.matrix @ result.matrix.T, np.eye(dim), atol=1e-12)


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([0.05, 0.5, 2.0]))
def test_the_sup_bracket_holds_the_best_isometry_of_the_plane(seed, noise):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(8, 2))
    y = x @ rotation(2, rng).T + noise * rng.normal(size=x.shape)
    result = geometry.best_isometry(x, y)
    residual = np.linalg.norm(result(x) - y, axis=1).max()
    np.testing.assert_allclose(residual, result.error, rtol=1e-9)
    assert result.lower_bound <= result.error
    # A fine grid of rotations and reflections, with the best shift to within 2 %.
    grid = np.inf
    for angle in np.linspace(0, 2 * np.pi, 180, endpoint=False):
        for flip in (1.0, -1.0):
            c, s = np.cos(angle), np.sin(angle)
            shift = y - (x * [1, flip]) @ np.array([[c, s], [-s, c]])
            middle = shift.mean(0)
            for k in range(40):
                far = shift[np.linalg.norm(shift - middle, axis=1).argmax()]
                middle = middle + (far - middle) / (k + 2)
            grid = min(grid, np.linalg.norm(shift - middle, axis=1).max())
    assert result.lower_bound <= grid * (1 + 1e-9)
    assert result.error <= grid * 1.02


def test_the_sup_isometry_never_loses_to_least_squares():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(40, 6))
    y = x + 0.3 * rng.standard_t(3, size=x.shape)
    least = geometry.best_isometry(x, y, "l2")
    assert geometry.best_isometry(x, y).error <= np.linalg.norm(least(x) - y, axis=1).max()
    assert least.error == least.lower_bound


@given(labelled_sets(), st.integers(0, 2**31), st.sampled_from([0.0, 1e-9, 1.0]))
def test_hausdorff_distances_equal_the_definitions(data, seed, size):
    x, labels = data
    y = x + size * np.random.default_rng(seed).normal(size=x.shape)
    # Coordinates near 100 carry an absolute rounding of 1e-14.
    close = {"rtol": 1e-9, "atol": 1e-13 * np.abs(x).max()}
    np.testing.assert_allclose(geometry.hausdorff(x, y[::-1]), hausdorff_distance(x, y), **close)
    per_class = max(hausdorff_distance(x[labels == c], y[labels == c]) for c in set(labels))
    np.testing.assert_allclose(geometry.hausdorff_like(x, y, labels), per_class, **close)
    moved = np.sqrt(((x - y) ** 2).sum(1)).max()
    assert geometry.hausdorff_like(x, y, labels) <= moved * (1 + 1e-9) + close["atol"]


def test_large_sets_agree_with_scipy():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(1300, 6)), rng.normal(size=(1100, 6)) + 0.3
    truth = max(directed_hausdorff(a, b)[0], directed_hausdorff(b, a)[0])
    np.testing.assert_allclose(geometry.hausdorff(a, b), truth, rtol=1e-10)


def test_hausdorff_like_compares_sets_not_samples():
    x = np.array([[0.0], [1.0], [5.0]])
    swapped = x[[1, 0, 2]]
    assert geometry.hausdorff_like(x, swapped, [0, 0, 1]) == 0.0
    assert geometry.hausdorff_like(x, swapped, [0, 1, 1]) == 1.0


@given(point_sets(max_dim=2), st.integers(1, 5), st.floats(-3, 3))
def test_set_distance_equals_the_definition(x, rows, shift):
    y = x[:rows][::-1] * 0.5 + shift
    truth = distance_matrix(x, y).min()  # its squares underflow below 1e-160
    np.testing.assert_allclose(geometry.set_distance(x, y), truth, rtol=1e-9, atol=1e-150)


def test_set_distance_of_large_sets_is_exact():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(1300, 8)) + 50, rng.normal(size=(1100, 8)) + 52
    np.testing.assert_allclose(geometry.set_distance(a, b), distance_matrix(a, b).min(), rtol=1e-10)


def test_wrong_arguments_are_refused_by_name():
    point = [[0.0]]
    refuses(geometry.best_isometry, {"x": point, "y": point}, norm=["max"], y=[[[0.0, 1.0]]])
    refuses(geometry.isometric_error, {"x": [[0.0], [1.0]]}, x_star=[point])
    refuses(
        geometry.hausdorff_like, {"x": point, "labels": [0]}, x_star=[[[np.inf]], [[0.0], [1.0]]]
    )
    for function in (geometry.hausdorff, geometry.set_distance):
        refuses(function, {"a": point}, b=[[[0.0, 0.0]]])
