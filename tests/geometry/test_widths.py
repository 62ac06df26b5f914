import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncollapse.geometry import diameter, iap_constant, thickness


def simplex(n):
    """Regular, of edge √2: the unit vectors of R^(n+1) in their own hyperplane."""
    corners = np.eye(n + 1) - 1 / (n + 1)
    return corners @ np.linalg.svd(corners)[2][:n].T


def cube(n):
    return np.array(list(itertools.product([0.0, 1.0], repeat=n)))


def cross_polytope(n):
    return np.concatenate([np.eye(n), -np.eye(n)])


def simplex_width(n):
    """Steinhagen: between faces of (n+1)/2 vertices each, or as even as can be."""
    half = (n + 1) // 2
    return math.sqrt(2) * math.sqrt((n + 1) / (2 * half * (n + 1 - half)))


@pytest.mark.parametrize("n", [2, 3, 4, 5])
@pytest.mark.parametrize(
    ("body", "width"),
    [(simplex, simplex_width), (cube, lambda n: 1.0), (cross_polytope, lambda n: 2 / math.sqrt(n))],
)
def test_thickness_of_regular_bodies_equals_the_closed_form(body, width, n):
    x = 1e-4 * body(n) + 7.0
    found = thickness(x)
    # The offset of 7 leaves the coordinates with a relative rounding of 1e-11.
    assert found.lower <= 1e-4 * width(n) * (1 + 1e-9)
    np.testing.assert_allclose(found.upper, 1e-4 * width(n), rtol=1e-9)
    np.testing.assert_allclose(np.ptp(x @ found.direction), found.upper, rtol=1e-9)
    if found.exact:
        np.testing.assert_allclose(found.lower, found.upper)
    assert found.exact or (n, body) == (5, cube)


@given(st.integers(0, 2**31), st.integers(2, 5), st.integers(0, 12))
def test_the_bracket_holds_against_every_direction_tried(seed, n, extra):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n + 1 + extra, n))
    found = thickness(x)
    np.testing.assert_allclose(np.ptp(x @ found.direction), found.upper, rtol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(found.direction), 1.0)
    directions = rng.normal(size=(n, 4000))
    directions /= np.linalg.norm(directions, axis=0)
    # A narrow cone around the witness too: no local improvement may exist.
    near = found.direction[:, None] + 0.02 * rng.normal(size=(n, 4000))
    near /= np.linalg.norm(near, axis=0)
    tried = min(np.ptp(x @ directions, axis=0).min(), np.ptp(x @ near, axis=0).min())
    assert found.lower <= found.upper * (1 + 1e-12)
    if found.exact:
        assert found.upper <= tried * (1 + 1e-9)
    assert found.lower <= tried


@pytest.mark.parametrize("n", [8, 24])
def test_in_high_dimension_the_bracket_is_certified_and_close(n):
    rng = np.random.default_rng(n)
    x = rng.normal(size=(400, n)) * np.linspace(1, 0.5, n)
    found = thickness(x)
    assert not found.exact
    assert 0.4 * found.upper < found.lower < found.upper
    principal = np.linalg.svd(x - x.mean(0))[2]
    assert found.upper <= min(np.ptp(x @ axis) for axis in principal)


def test_the_cross_polytope_is_bracketed_exactly_in_dimension_nine():
    found = thickness(cross_polytope(9))
    np.testing.assert_allclose([found.lower, found.upper], 2 / 3, rtol=1e-6)


@pytest.mark.parametrize("x", [[[0.0, 0.0], [1.0, 2.0]], [[1.0, 1.0]], [[0.0, 1.0]] * 5])
def test_flat_sets_have_thickness_zero_and_an_infinite_constant(x):
    found = thickness(x)
    assert (found.lower, found.upper, found.exact) == (0.0, 0.0, True)
    np.testing.assert_allclose(np.ptp(np.array(x) @ found.direction), 0.0, atol=1e-12)
    assert iap_constant(x) == math.inf


def test_in_one_dimension_thickness_is_the_range():
    assert thickness([[1.0], [4.0], [2.0]]).upper == 3.0
    assert iap_constant([[1.0], [4.0]]) == 1.0


def test_iap_constant_is_diameter_over_thickness():
    x = simplex(3)
    np.testing.assert_allclose(iap_constant(x), diameter(x) / thickness(x).lower)


def test_bad_input_names_the_argument():
    with pytest.raises(ValueError, match="x: expected finite numbers"):
        thickness([[np.nan]])
