"""The gradient of a gradient is that of the formula, in every loss, mined or not."""

import pytest
import torch
from torch.autograd import gradgradcheck

from losses.loss_oracles import every_loss
from uncollapse.losses import MultiSimilarityLoss, TripletLoss
from uncollapse.mining import Miner

LABELS = torch.arange(8) // 2 % 3
MINERS = {
    "unmined": None,
    "easy hard": Miner("easy", "hard"),
    "hard semihard": Miner("hard", "semihard"),
    "all all": Miner("all", "all"),
}
MINED = pytest.mark.parametrize("miner", MINERS.values(), ids=MINERS)


def rows(seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(8, 3, generator=g, dtype=torch.float64).requires_grad_()


def assert_right(loss, *leaves):
    assert gradgradcheck(loss, leaves or (rows(),), fast_mode=True, atol=1e-4)


@MINED
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("scale_free", [False, True, "hardest-negative"])
@pytest.mark.parametrize(
    ("reduction", "soft"),
    [("mean", False), ("nonzero", False), ("mean", True), ("nonzero", True), ("max", False)],
)
def test_those_of_the_triplet_loss_are_right(reduction, soft, scale_free, normalize, miner):
    form = {"soft": soft, "scale_free": scale_free, "normalize": normalize}
    loss = TripletLoss(margin=0.4, miner=miner, reduction=reduction, **form)
    assert_right(lambda z: loss(z, LABELS))


LOSSES = every_loss(3, 3, gentle=True)
# Circle's weights are off the graph: its gradient is not that of the value, see its own tests.
EVERY = pytest.mark.parametrize("name", [name for name in LOSSES if name != "circle"])


@MINED
@EVERY
def test_those_of_every_loss_are_right(name, miner):
    loss = LOSSES[name](miner).double()
    assert_right(lambda z: loss(z, LABELS))


@pytest.mark.parametrize("mining", [("multi_similarity",) * 2, ("easy", "multi_similarity")])
def test_those_of_mined_multi_similarity_are_right(mining):
    loss = MultiSimilarityLoss(beta=5.0, miner=Miner(*mining))
    assert_right(lambda z: loss(z, LABELS))


@EVERY
def test_those_with_references_are_right(name):
    loss = LOSSES[name]().double()

    def against(z, ref):
        return loss(z, LABELS, ref_embeddings=ref, ref_labels=LABELS)

    assert_right(against, rows(), rows(1))


@pytest.mark.parametrize("miner", [None, Miner("easy", "hard")])
@pytest.mark.parametrize("name", LOSSES)
def test_those_of_coinciding_rows_are_finite(name, miner):
    loss = LOSSES[name](miner)
    z = rows().detach()
    z[1] = z[0]
    z[4] = z[0]
    z[7] = 0.0
    z.requires_grad_()
    (first,) = torch.autograd.grad(loss(z, LABELS), z, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), z)
    assert bool(torch.isfinite(first).all())
    assert bool(torch.isfinite(second).all())
