import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import distance_matrix, point_sets
from uncollapse.geometry import best_isometry, isometric_error


@given(point_sets(), st.integers(0, 2**31))
def test_isometric_error_equals_the_definition(x, seed):
    y = x + np.random.default_rng(seed).normal(size=x.shape)
    truth = np.abs(distance_matrix(x) - distance_matrix(y)).max()
    close = {"rtol": 1e-9, "atol": 1e-12 * np.abs(x).max()}
    np.testing.assert_allclose(isometric_error(x, y), truth, **close)


def test_isometric_error_of_a_large_set_is_exact():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1500, 4))
    y = x + 0.1 * rng.normal(size=x.shape)
    truth = np.abs(distance_matrix(x) - distance_matrix(y)).max()
    np.testing.assert_allclose(isometric_error(x, y), truth, rtol=1e-10)


def rotation(dim: int, rng: np.random.Generator) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(dim, dim)))[0]


@pytest.mark.parametrize("norm", ["sup", "l2"])
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_an_isometry_is_recovered_even_far_from_the_origin(norm, dim):
    rng = np.random.default_rng(dim)
    x = rng.normal(size=(12, dim)) + 1e3
    turn, shift = rotation(dim, rng), rng.normal(size=dim)
    found = best_isometry(x, x @ turn.T + shift, norm)
    assert found.error < 1e-9
    np.testing.assert_allclose(found(x), x @ turn.T + shift, atol=1e-8)
    np.testing.assert_allclose(found.matrix @ found.matrix.T, np.eye(dim), atol=1e-12)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([0.05, 0.5, 2.0]))
def test_the_sup_bracket_holds_the_best_isometry_of_the_plane(seed, noise):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(8, 2))
    y = x @ rotation(2, rng).T + noise * rng.normal(size=x.shape)
    found = best_isometry(x, y)
    residual = np.linalg.norm(found(x) - y, axis=1).max()
    np.testing.assert_allclose(residual, found.error, rtol=1e-9)
    assert found.lower_bound <= found.error
    # A fine grid of rotations and reflections, with the best shift to within 2 %.
    grid = np.inf
    for angle in np.linspace(0, 2 * np.pi, 180, endpoint=False):
        for flip in (1.0, -1.0):
            c, s = np.cos(angle), np.sin(angle)
            rest = y - (x * [1, flip]) @ np.array([[c, s], [-s, c]])
            middle = rest.mean(0)
            for k in range(40):
                far = rest[np.linalg.norm(rest - middle, axis=1).argmax()]
                middle = middle + (far - middle) / (k + 2)
            grid = min(grid, np.linalg.norm(rest - middle, axis=1).max())
    assert found.lower_bound <= grid * (1 + 1e-9)
    assert found.error <= grid * 1.02


def test_the_sup_isometry_never_loses_to_least_squares():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(40, 6))
    y = x + 0.3 * rng.standard_t(3, size=x.shape)
    least = best_isometry(x, y, "l2")
    assert best_isometry(x, y).error <= np.linalg.norm(least(x) - y, axis=1).max()
    assert least.error == least.lower_bound


def test_bad_input_names_the_argument():
    with pytest.raises(ValueError, match="norm: expected one of 'sup', 'l2', got 'max'"):
        best_isometry([[0.0]], [[0.0]], "max")
    with pytest.raises(ValueError, match="y: expected x's"):
        best_isometry([[0.0]], [[0.0, 1.0]])
    with pytest.raises(ValueError, match="x_star: expected 2"):
        isometric_error([[0.0], [1.0]], [[0.0]])
