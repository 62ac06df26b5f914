import math

import pytest
import torch
from hypothesis import given
from pytorch_metric_learning import losses as pml_losses

from losses.loss_oracles import (
    MINERS,
    assert_same,
    batches,
    distances,
    mean,
    measured,
    sets,
    unit,
)
from losses.pml_tester import MINED, assert_is_pml_s
from uncollapse.losses import CircleLoss
from uncollapse.mining import Miner

pytestmark = pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")


def plain(wide, labels, margin, gamma, miner=None):
    """Sun et al., pair by pair."""
    y = unit(wide)
    s = 1 - distances(y).square() / 2
    tuples = None if miner is None else miner(y, labels)
    each = []
    for i, (own, other) in enumerate(sets(labels, len(wide), tuples)):
        if own and other:
            near = [
                torch.exp(-gamma * (1 + margin - s[i, p].detach()).relu() * (s[i, p] - 1 + margin))
                for p in own
            ]
            far = [
                torch.exp(gamma * (s[i, n].detach() + margin).relu() * (s[i, n] - margin))
                for n in other
            ]
            each.append(torch.log(1 + sum(far) * sum(near)))
    return mean(each, wide)


@given(batches(), MINERS)
def test_circle_equals_the_definition(batch, miner):
    x, labels = batch
    x = x + 0.1
    loss = CircleLoss(margin=0.25, gamma=7.0, miner=miner)
    truth = lambda wide: plain(wide, labels, 0.25, 7.0, miner)  # noqa: E731
    assert_same(lambda z: loss(z, labels), truth, x, 1e-7)


@MINED
def test_it_is_pml_s(mined):
    assert_is_pml_s(CircleLoss(reduction="nonzero"), pml_losses.CircleLoss(), mined=mined)


def test_its_second_derivative_is_that_of_fixed_weights():
    g = torch.Generator().manual_seed(0)
    x, labels = torch.randn(8, 3, generator=g, dtype=torch.float64), torch.arange(8) % 3
    found = []
    for loss in (CircleLoss(gamma=4.0), lambda z, y: plain(z, y, 0.4, 4.0)):
        z = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(loss(z, labels), z, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), z)[0])
    torch.testing.assert_close(*found, rtol=1e-8, atol=1e-10)


def test_anchors_without_a_pair_of_either_kind_are_left_out():
    x, labels = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), [0, 0, 1, 1, 2]
    assert CircleLoss().elements(x, labels).anchor.tolist() == [0, 1, 2, 3]
    assert CircleLoss(miner=Miner("all", "all"))(x, labels) == CircleLoss()(x, labels)


def test_when_all_coincide_the_value_is_as_documented_and_the_gradient_zero():
    x, labels = torch.full((12, 6), 0.3), torch.arange(12) // 4
    value, gradient = measured(lambda z: CircleLoss()(z, labels), x)
    assert value == pytest.approx(math.log(3 * 8) + 80 * (1 - 2 * 0.4**2), rel=1e-6)
    assert float(gradient.abs().max()) < 1e-6
