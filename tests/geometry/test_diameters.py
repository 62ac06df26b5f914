import numpy as np
import pytest
import torch
from hypothesis import given
from scipy.spatial.distance import pdist

from oracles import distance_matrix, labelled_sets, point_sets
from uncollapse.geometry import class_diameters, diameter


@given(point_sets())
def test_diameter_of_few_points_equals_the_definition(x):
    np.testing.assert_allclose(diameter(x), distance_matrix(x).max(), rtol=1e-10, atol=0)


KINDS = [
    "gaussian",
    "sphere",
    "power law",
    "rank 4",
    "grid",
    "two points",
    "heavy tail",
    "one point",
]


def many_points(kind: str, n: int, dim: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, dim))
    match kind:
        case "sphere":
            return x / np.linalg.norm(x, axis=1, keepdims=True)
        case "power law":
            return x / np.arange(1, dim + 1)
        case "rank 2":
            return x[:, :2] @ rng.normal(size=(2, dim)) + 1e-3 * x
        case "grid":  # very many pairs tie for the diameter
            return np.sign(x)
        case "two points":
            return np.sign(x[:, :1]) * np.ones(dim)
        case "heavy tail":
            return x * np.exp(rng.normal(size=(n, 1)))
        case "one point":
            return np.full((n, dim), 0.1)
    return x


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dim", [2, 3, 80])
def test_diameter_of_many_points_equals_brute_force(kind, dim):
    for seed, offset in enumerate([0.0, 1e3]):
        x = many_points(kind, 2600, dim, seed) + offset
        np.testing.assert_allclose(diameter(x), pdist(x).max(), rtol=1e-9, atol=0)
        single = torch.from_numpy(x.astype(np.float32))
        truth = pdist(single.double().numpy()).max()
        np.testing.assert_allclose(diameter(single), truth, rtol=1e-9, atol=0)


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e30, 1e150])
def test_diameter_at_extreme_scales(scale):
    x = many_points("gaussian", 1500, 5, 0)
    np.testing.assert_allclose(diameter(x * scale), pdist(x).max() * scale, rtol=1e-9)
    np.testing.assert_allclose(diameter(x[:50] * scale), pdist(x[:50]).max() * scale, rtol=1e-9)


@pytest.mark.parametrize("rows", [2, 7, 60, 600])
def test_diameter_at_the_ends_of_float64(rows):
    x = many_points("gaussian", rows, 5, 0)
    for scale in (1e-300, 1e300):
        np.testing.assert_allclose(diameter(x * scale), pdist(x).max() * scale, rtol=1e-9)


def test_products_that_torch_may_round_are_not_relied_on():
    x = many_points("sphere", 1500, 40, 0)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        found = diameter(torch.from_numpy(x).float())
    finally:
        torch.set_float32_matmul_precision(before)
    np.testing.assert_allclose(found, pdist(x.astype(np.float32)).max(), rtol=1e-9)


@pytest.mark.parametrize("norm", [0.0, 1.0, 1e3])
@pytest.mark.parametrize("spread", [10.0**-e for e in range(1, 8)])
def test_class_diameters_are_right_near_collapse(spread, norm):
    rng = np.random.default_rng(0)
    labels = np.arange(1400) % 2
    centres = rng.normal(size=(2, 16))
    centres *= norm / np.linalg.norm(centres, axis=1, keepdims=True)
    x = (centres[labels] + labels[:, None] + spread * rng.normal(size=(1400, 16))).astype(
        np.float32
    )
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


def test_diameter_of_one_point_is_zero():
    assert diameter([[1.0, 2.0]]) == 0.0


def test_bad_input_names_the_argument():
    with pytest.raises(ValueError, match="labels: expected 2"):
        class_diameters([[0.0], [1.0]], [0])
    with pytest.raises(ValueError, match="x: expected finite numbers"):
        diameter([[np.nan]])
