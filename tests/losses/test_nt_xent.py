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
from losses.pml_tester import MINED, assert_is_pml_s, pml_batch
from uncollapse.losses import NTXentLoss

pytestmark = pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")


@given(batches(), MINERS)
def test_nt_xent_equals_the_definition(batch, miner):
    x, labels = batch
    x = x + 0.1

    def truth(wide):  # van den Oord et al., pair by pair
        y = unit(wide)
        e = torch.exp((1 - distances(y).square() / 2) / 0.3)
        tuples = None if miner is None else miner(y, labels)
        each = []
        for i, (own, other) in enumerate(sets(labels, len(x), tuples)):
            for p in own:
                whole = e[i, p] + sum((e[i, n] for n in other), torch.zeros(()))
                each.append(-torch.log(e[i, p] / whole))
        return mean(each, wide)

    loss = NTXentLoss(temperature=0.3, miner=miner)
    assert_same(lambda z: loss(z, labels), truth, x, 1e-7)


@MINED
def test_it_is_pml_s(mined):
    assert_is_pml_s(NTXentLoss(), pml_losses.NTXentLoss(), mined=mined)


def test_with_references_it_is_pml_s():
    x, labels = pml_batch()
    beside = {"ref_emb": x.flip(0) + 0.5, "ref_labels": labels.flip(0)}
    assert_is_pml_s(NTXentLoss(), pml_losses.NTXentLoss(), **beside)


def test_it_is_simclr_s_for_two_views_of_each_sample():
    g = torch.Generator().manual_seed(0)
    z = unit(torch.randn(8, 4, generator=g, dtype=torch.float64))
    s = (z @ z.T / 0.5).fill_diagonal_(-torch.inf)  # Chen et al.: all but the sample itself
    expected = torch.nn.functional.cross_entropy(s, torch.arange(8).roll(4))
    labels = torch.arange(4).repeat(2)
    torch.testing.assert_close(NTXentLoss(temperature=0.5)(z, labels), expected)


def test_when_all_coincide_the_value_is_as_documented_and_the_gradient_zero():
    x, labels = torch.full((12, 6), 0.3), torch.arange(12) // 4
    value, gradient = measured(lambda z: NTXentLoss()(z, labels), x)
    assert value == pytest.approx(math.log(9), rel=1e-6)
    assert float(gradient.abs().max()) < 1e-7
