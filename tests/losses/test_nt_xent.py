import math

import pytest
import torch
from hypothesis import given, settings
from pytorch_metric_learning import losses as pml_losses

from losses.loss_oracles import (
    MINERS,
    PML_EASY,
    PML_MINED,
    assert_same,
    batches,
    distances,
    mean,
    measured,
    pml_batch,
    sets,
    unit,
)
from uncollapse.losses import NTXentLoss

pytestmark = pytest.mark.filterwarnings("ignore::uncollapse.mining.NoTripletsWarning")


@given(batches(), MINERS)
@settings(max_examples=50, deadline=None)
def test_nt_xent_equals_the_definition(batch, miner):
    x, labels = batch
    x = x + 0.1

    def truth(wide):  # van den Oord et al. (4), pair by pair
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


@pytest.mark.parametrize("mined", [None, PML_MINED, PML_EASY])
def test_it_is_pml_s(mined):
    x, labels = pml_batch()
    x = x.double()
    tuples = None if mined is None else mined(x, labels)
    ours, theirs = NTXentLoss(), pml_losses.NTXentLoss()
    a, b = (measured(lambda z, f=f: f(z, labels, tuples), x) for f in (ours, theirs))
    assert a[0] == pytest.approx(b[0], rel=1e-9)
    torch.testing.assert_close(a[1], b[1], rtol=1e-7, atol=1e-9)


def test_with_references_it_is_pml_s():
    x, labels = pml_batch()
    ref, ref_labels = x.flip(0).double() + 0.5, labels.flip(0)
    ours, theirs = (
        measured(lambda z, f=f: f(z, labels, ref_emb=ref, ref_labels=ref_labels), x.double())
        for f in (NTXentLoss(), pml_losses.NTXentLoss())
    )
    assert ours[0] == pytest.approx(theirs[0], rel=1e-9)
    torch.testing.assert_close(ours[1], theirs[1], rtol=1e-7, atol=1e-9)


def test_it_is_simclr_s_for_two_views_of_each_sample():
    g = torch.Generator().manual_seed(0)
    z = unit(torch.randn(8, 4, generator=g, dtype=torch.float64))
    s = (z @ z.T / 0.5).fill_diagonal_(-torch.inf)  # Chen et al. (1): all but the sample itself
    expected = torch.nn.functional.cross_entropy(s, torch.arange(8).roll(4))
    labels = torch.arange(4).repeat(2)
    torch.testing.assert_close(NTXentLoss(temperature=0.5)(z, labels), expected)


def test_when_all_coincide_the_value_is_as_documented_and_the_gradient_zero():
    x, labels = torch.full((12, 6), 0.3), torch.arange(12) // 4
    value, gradient = measured(lambda z: NTXentLoss()(z, labels), x)
    assert value == pytest.approx(math.log(9), rel=1e-6)
    assert float(gradient.abs().max()) < 1e-7
