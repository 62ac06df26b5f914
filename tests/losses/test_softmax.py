"""Softmax losses in one go are those of the formula: `SupConLoss` and `NTXentLoss`, all pairs."""

from __future__ import annotations

import pytest
import torch

from losses.loss_oracles import measured
from uncollapse._base.extras import without_kernels
from uncollapse.distances.frame import device_path
from uncollapse.losses import NTXentLoss, SupConLoss
from uncollapse.losses import nt_xent as _nt_xent

KINDS = [SupConLoss, NTXentLoss]


def batch(n=300, classes=40, dim=24, seed=0):
    """More rows than a block has; classes of many sizes, some of one row."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=g)
    labels[:3] = classes + torch.arange(3)
    return torch.randn(n, dim, generator=g) + 0.3 * torch.randn(2, dim, generator=g)[1], labels


def by_formula(loss, x, labels):
    """Value and gradient of the listed loss, in float64."""

    def plain(z):
        return loss.reduce(loss.elements(z, labels))

    return measured(plain, x.double())


def assert_as_formula(loss, x, labels, tolerance=2e-6, rel=1e-6):
    value, gradient = measured(lambda z: loss(z, labels), x)
    true_value, truth = by_formula(loss, x, labels)
    assert value == pytest.approx(true_value, rel=rel, abs=rel)
    assert float((gradient - truth).norm()) <= tolerance * float(truth.norm())


@pytest.fixture
def in_one_go(monkeypatch):
    """Counts the calls that took the fast way."""
    taken, fast = [], _nt_xent.pair_softmax

    def counted(*args):
        taken.append(args)
        return fast(*args)

    monkeypatch.setattr(_nt_xent, "pair_softmax", counted)
    return taken


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("noise", [1e-1, 1e-3, 1e-5, 1e-7])
def test_float32_values_and_gradients_are_right_near_collapse(kind, noise, in_one_go):
    x, labels = batch()
    assert_as_formula(kind(), 1 + noise * x, labels)
    assert len(in_one_go) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("noise", [1.0, 1e-3])
def test_float64_rows_keep_the_digits_of_float64(kind, noise):
    x, labels = batch()
    assert_as_formula(kind(), 1 + noise * x.double(), labels, tolerance=1e-11, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spots", [2, 5, 60])
@pytest.mark.parametrize("noise", [0.0, 1e-2, 1e-5])
def test_float32_gradients_are_right_where_classes_share_tight_spots(kind, spots, noise):
    x, labels = batch()
    g = torch.Generator().manual_seed(3)
    places = torch.randn(spots, x.shape[1], generator=g)
    spot = torch.randint(spots, (len(x),), generator=g)
    assert_as_formula(kind(), places[spot] + noise * x, labels)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [1, 2, 297])
def test_one_class_large_classes_and_single_rows_are_right(kind, classes):
    x, labels = batch(classes=classes)
    assert_as_formula(kind(), x, labels)
    assert_as_formula(kind(), x[3:], labels[3:])


@pytest.mark.parametrize("kind", KINDS)
def test_more_rows_than_are_kept_at_once_are_right(kind, monkeypatch):
    monkeypatch.setattr("uncollapse.distances.tiles._KEPT", 100)
    assert_as_formula(kind(), *batch())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("noise", [1.0, 1e-5])
@pytest.mark.parametrize("elsewhere", [device_path, without_kernels])
def test_without_the_compiled_kernels_they_are_the_same(elsewhere, kind, noise):
    x, labels = batch()
    x = 1 + noise * x
    with elsewhere():
        assert_as_formula(kind(), x, labels)


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_with_a_positive_costs_nothing(kind, in_one_go):
    value, gradient = measured(lambda z: kind()(z, torch.arange(9)), torch.randn(9, 4))
    assert len(in_one_go) == 1
    assert value == 0
    assert not gradient.any()


@pytest.mark.parametrize("kind", KINDS)
def test_a_low_temperature_takes_the_digits_of_float64(kind, in_one_go):
    x, labels = batch()
    assert_as_formula(kind(temperature=2e-3), x, labels, tolerance=5e-5)
    assert not in_one_go


@pytest.mark.parametrize("kind", KINDS)
def test_the_second_derivative_is_that_of_the_formula(kind):
    x, labels = batch(n=40, classes=8)
    found = []
    for plain in (False, True):
        loss, z = kind(temperature=0.5), x.double().requires_grad_()
        value = loss.reduce(loss.elements(z, labels)) if plain else loss(z, labels)
        (first,) = torch.autograd.grad(value, z, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), z)[0])
    torch.testing.assert_close(*found, rtol=1e-8, atol=1e-12)
