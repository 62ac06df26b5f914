import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import pdist

from support.errors import refuses
from support.oracles import distance_matrix, labelled_sets, point_sets
from support.precision import rounded_products
from uncollapse.geometry import class_diameters, diameter, iap_constant, thickness
from uncollapse.geometry.diameters import diameter_lower_bound


@given(point_sets())
def test_diameter_of_few_points_equals_the_definition(x):
    np.testing.assert_allclose(diameter(x), distance_matrix(x).max(), rtol=1e-10, atol=0)


SHAPES = {
    "gaussian": lambda x, rng: x,
    "sphere": lambda x, rng: x / np.linalg.norm(x, axis=1, keepdims=True),
    "power law": lambda x, rng: x / np.arange(1, x.shape[1] + 1),
    "rank 2": lambda x, rng: x[:, :2] @ rng.normal(size=(2, x.shape[1])) + 1e-3 * x,
    "grid": lambda x, rng: np.sign(x),  # very many pairs tie for the diameter
    "two points": lambda x, rng: np.sign(x[:, :1]) * np.ones(x.shape[1]),
    "heavy tail": lambda x, rng: x * np.exp(rng.normal(size=(len(x), 1))),
}


def many_points(kind, n, dim, seed=0):
    rng = np.random.default_rng(seed)
    return SHAPES[kind](rng.normal(size=(n, dim)), rng)


@pytest.mark.parametrize(("dim", "offset"), [(3, 1e3), (5, 0.0), (80, 0.0), (600, 0.0)])
@pytest.mark.parametrize("kind", SHAPES)
def test_diameter_of_many_points_equals_brute_force(kind, dim, offset):
    x = torch.from_numpy(many_points(kind, 2600, dim) + offset)
    for given_points in (x, x.float()):
        truth = pdist(given_points.double().numpy()).max()
        np.testing.assert_allclose(diameter(given_points), truth, rtol=1e-9, atol=0)


@pytest.mark.parametrize("rows", [2, 7, 60, 1500])
def test_diameter_at_the_ends_of_float64(rows):
    x = many_points("gaussian", rows, 5, 0)
    for scale in (1e-300, 1e-200, 1e-30, 1e30, 1e150, 1e300):
        np.testing.assert_allclose(diameter(x * scale), pdist(x).max() * scale, rtol=1e-9)


def test_products_that_torch_may_round_are_not_relied_on():
    x = many_points("sphere", 1500, 40, 0)
    with rounded_products():
        result = diameter(torch.from_numpy(x).float())
    np.testing.assert_allclose(result, pdist(x.astype(np.float32)).max(), rtol=1e-9)


@pytest.mark.parametrize("norm", [0.0, 1.0, 1e3])
@pytest.mark.parametrize("spread", [1e-1, 1e-3, 1e-5, 1e-7])
def test_class_diameters_are_right_near_collapse(spread, norm):
    rng = np.random.default_rng(0)
    labels = np.arange(1200) % 2
    centres = rng.normal(size=(2, 16))
    centres *= norm / np.linalg.norm(centres, axis=1, keepdims=True)
    x = centres[labels] + labels[:, None] + spread * rng.normal(size=(1200, 16))
    x = x.astype(np.float32)
    wide = x.astype(np.float64)
    for label, ours in class_diameters(torch.from_numpy(x), labels).items():
        np.testing.assert_allclose(ours, pdist(wide[labels == label]).max(), rtol=1e-9)
    np.testing.assert_allclose(diameter(x), pdist(wide).max(), rtol=1e-9)


@given(labelled_sets(min_classes=1))
def test_class_diameters_equal_the_definition(data):
    x, labels = data
    ours = class_diameters(x, labels)
    assert list(ours) == sorted(set(labels.tolist()))
    for label, value in ours.items():
        truth = distance_matrix(x[labels == label]).max()
        np.testing.assert_allclose(value, truth, rtol=1e-10)


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
    result = thickness(x)
    # The offset of 7 leaves the coordinates with a relative rounding of 1e-11.
    assert result.lower <= 1e-4 * width(n) * (1 + 1e-9)
    np.testing.assert_allclose(result.upper, 1e-4 * width(n), rtol=1e-9)
    np.testing.assert_allclose(np.ptp(x @ result.direction), result.upper, rtol=1e-9)
    if result.exact:
        np.testing.assert_allclose(result.lower, result.upper)
    assert result.exact or (n, body) == (5, cube)


@given(st.integers(0, 2**31), st.integers(2, 5), st.integers(0, 12))
def test_the_bracket_holds_against_every_direction_tried(seed, n, extra):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n + 1 + extra, n))
    result = thickness(x)
    np.testing.assert_allclose(np.ptp(x @ result.direction), result.upper, rtol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(result.direction), 1.0)
    directions = rng.normal(size=(n, 4000))
    directions /= np.linalg.norm(directions, axis=0)
    # A narrow cone around the witness too: no local improvement may exist.
    near = result.direction[:, None] + 0.02 * rng.normal(size=(n, 4000))
    near /= np.linalg.norm(near, axis=0)
    tried = min(np.ptp(x @ directions, axis=0).min(), np.ptp(x @ near, axis=0).min())
    assert result.lower <= result.upper * (1 + 1e-12)
    if result.exact:
        assert result.upper <= tried * (1 + 1e-9)
    assert result.lower <= tried


@pytest.mark.parametrize("n", [8, pytest.param(24, marks=pytest.mark.slow)])
def test_in_high_dimension_the_bracket_is_certified_and_close(n):
    rng = np.random.default_rng(n)
    x = rng.normal(size=(400, n)) * np.linspace(1, 0.5, n)
    result = thickness(x)
    assert not result.exact
    assert 0.4 * result.upper < result.lower < result.upper
    principal = np.linalg.svd(x - x.mean(0))[2]
    assert result.upper <= min(np.ptp(x @ axis) for axis in principal)


def test_the_cross_polytope_is_bracketed_exactly_in_dimension_nine():
    result = thickness(cross_polytope(9))
    np.testing.assert_allclose([result.lower, result.upper], 2 / 3, rtol=1e-6)


@pytest.mark.parametrize("x", [[[0.0, 0.0], [1.0, 2.0]], [[1.0, 1.0]], [[0.0, 1.0]] * 5])
def test_flat_sets_have_thickness_zero_and_an_infinite_constant(x):
    result = thickness(x)
    assert (result.lower, result.upper, result.exact) == (0.0, 0.0, True)
    np.testing.assert_allclose(np.ptp(np.array(x) @ result.direction), 0.0, atol=1e-12)
    assert iap_constant(x) == math.inf


def test_in_one_dimension_thickness_is_the_range():
    assert thickness([[1.0], [4.0], [2.0]]).upper == 3.0
    assert iap_constant([[1.0], [4.0]]) == 1.0


def test_iap_constant_is_diameter_over_thickness():
    x = simplex(3)
    np.testing.assert_allclose(iap_constant(x), diameter(x) / thickness(x).lower)


def test_one_point_has_no_diameter():
    assert diameter([[1.0, 2.0]]) == 0.0
    assert diameter(np.full((1300, 3), 0.1)) == 0.0


def test_the_diameter_bound_is_a_line():
    assert diameter_lower_bound(4.0, 0.5) == 3.0
    assert diameter_lower_bound(4.0, 0.5, c=10.0) == -1.0


def test_wrong_arguments_are_refused_by_name():
    refuses(class_diameters, {"x": [[0.0], [1.0]]}, labels=[[0]])
    refuses(diameter, {}, x=[[[np.nan]]])
    refuses(thickness, {}, x=[[[np.nan]]])
    good = {"diameter_init": 4.0, "loss_init": 0.5}
    refuses(diameter_lower_bound, good, loss_init=[-0.5], diameter_init=[math.nan])
