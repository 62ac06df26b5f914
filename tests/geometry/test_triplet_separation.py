import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from support.errors import refuses
from support.oracles import distance_matrix, labelled_sets, separation_margin
from support.precision import rounded_products
from uncollapse.geometry import hard_mined_loss, is_triplet_separated, separation


@given(labelled_sets(max_rows=8), st.floats(0, 2))
def test_separation_equals_the_definition(data, alpha):
    x, labels = data
    truth, scale = separation_margin(x, labels), np.abs(x).max()
    result = separation(x, labels)
    np.testing.assert_allclose(result.margin, truth, rtol=1e-9, atol=1e-13 * scale)
    d = distance_matrix(x)
    witness = d[result.anchor, result.negative] - d[result.anchor, result.positive]
    np.testing.assert_allclose(witness, truth, rtol=1e-9, atol=1e-13 * scale)
    assert labels[result.anchor] == labels[result.positive] != labels[result.negative]
    loss = max(0.0, alpha - truth)
    np.testing.assert_allclose(hard_mined_loss(x, labels, alpha), loss, rtol=1e-9, atol=1e-12)
    assert is_triplet_separated(x, labels, alpha) == (result.margin >= alpha)


def dense_margin(x, labels):
    d = cdist(x.astype(np.float64), x.astype(np.float64))
    same = labels[:, None] == labels
    return (np.where(same, np.inf, d).min(1) - np.where(same, d, 0).max(1)).min()


@pytest.mark.parametrize("classes", [2, 1300])
@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_separation_of_many_points_equals_brute_force(classes, offset):
    rng = np.random.default_rng(classes)
    labels = rng.integers(0, classes, 1500)
    x = rng.normal(size=(1500, 12)) + rng.normal(size=(classes, 12))[labels] + offset
    x = x.astype(np.float32)
    margin = separation(torch.from_numpy(x), torch.from_numpy(labels)).margin
    np.testing.assert_allclose(margin, dense_margin(x, labels), rtol=1e-9)


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_classes_of_one_of_a_few_and_of_many_are_measured_alike(offset):
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(8), [1, 1, 2, 31, 32, 33, 300, 1100]))
    spread = np.array([1, 1, 0.5, 4e-2, 3e-2, 2e-2, 1e-2, 8e-3])[labels, None]
    x = spread * rng.normal(size=(1500, 6)) + rng.normal(size=(8, 6))[labels] + offset
    x = x.astype(np.float32)
    truth = dense_margin(x, labels)
    np.testing.assert_allclose(separation(x, labels).margin, truth, rtol=1e-9)


def test_products_that_torch_may_round_are_not_relied_on():
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(1500, 12)), rng.integers(0, 5, 1500)
    with rounded_products():
        result = separation(x, labels).margin
    np.testing.assert_allclose(result, dense_margin(x, labels), rtol=1e-9)


@pytest.mark.parametrize("spread", [1e-1, 1e-3, 1e-5, 1e-7])
def test_two_tight_classes_far_apart_are_measured_exactly(spread):
    rng = np.random.default_rng(0)
    labels = np.arange(1200) % 2
    x = (labels[:, None] + spread * rng.normal(size=(1200, 8))).astype(np.float32)
    truth = dense_margin(x, labels)
    np.testing.assert_allclose(separation(x, labels).margin, truth, rtol=1e-10)


def test_total_collapse_has_margin_zero_and_loss_alpha():
    x, labels = np.full((1500, 4), 0.3), np.arange(1500) % 3
    assert separation(x, labels).margin == 0.0
    assert hard_mined_loss(x, labels, 0.2) == 0.2


def test_the_lowest_rows_win_a_tie():
    x = [[0.0], [1.0], [0.0], [1.0]]
    result = separation(x, [0, 1, 0, 1])
    assert (result.anchor, result.positive, result.negative) == (0, 0, 1)


def test_singletons_are_anchors_with_themselves_as_positive():
    result = separation([[0.0], [3.0]], ["a", "b"])
    assert (result.margin, result.anchor, result.positive) == (3.0, 0, 0)


def test_wrong_arguments_are_refused_by_name():
    two = {"x": [[0.0], [1.0]], "labels": [0, 1]}
    refuses(hard_mined_loss, two, labels=[[0, 0], [0, 1, 1]], alpha=[-1.0])
    refuses(hard_mined_loss, two | {"labels": [0]}, x=[[[0.0]]])
