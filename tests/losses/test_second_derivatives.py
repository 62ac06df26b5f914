"""The gradient of a gradient is that of the formula, in every loss, mined or not."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradgradcheck

from losses.loss_oracles import distances, makers, unit
from uncollapse.losses import (
    ContrastiveLoss,
    IdentityLoss,
    MarginLoss,
    MultiSimilarityLoss,
    NPairLoss,
    SpreadLoss,
    TrimmedLoss,
    TripletLoss,
)
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


MAKE = makers(3, 3, gentle=True)
# Weights off the graph: the gradient is not that of the value, see the loss's own tests.
WEIGHTED = {"circle": lambda m: MAKE["circle"](miner=m)}
OTHERS = {
    **{
        name: lambda m, make=make: make(miner=m).double()
        for name, make in MAKE.items()
        if name not in ("triplet", *WEIGHTED)
    },
    "squared": lambda m: TripletLoss(distance="squared", miner=m, swap=True),
    "cosine": lambda m: TripletLoss(distance="cosine", miner=m),
    "violating": lambda m: TripletLoss(miner=Miner("all", "all", keep="violating")),
    "contrastive pairs": lambda m: ContrastiveLoss(miner=m, reduction="pairs"),
    "contrastive nonzero": lambda m: ContrastiveLoss(miner=m, normalize=True, reduction="nonzero"),
    "margin mean": lambda m: MarginLoss(miner=m, reduction="mean", normalize=True, nu=0.1),
    "n-pair l2": lambda m: NPairLoss(miner=m, l2=0.1),
    "n-pair normalised": lambda m: NPairLoss(miner=m, normalize=True),
    "spread from itself": lambda m: SpreadLoss(stand_in="self", miner=m),
    "trimmed": lambda m: TrimmedLoss(TripletLoss(miner=m, soft=True), fraction=0.7),
    "identity": lambda m: IdentityLoss(TripletLoss(miner=m), num_classes=3, dim=3).double(),
    "neck": lambda m: IdentityLoss(
        TripletLoss(miner=m), num_classes=3, dim=3, label_smoothing=0.1, neck="batch-norm"
    ).double(),
}


@MINED
@pytest.mark.parametrize("name", OTHERS)
def test_those_of_every_other_loss_are_right(name, miner):
    torch.manual_seed(0)
    loss = OTHERS[name](miner)
    assert_right(lambda z: loss(z, LABELS))


@pytest.mark.parametrize("mining", [("multi_similarity",) * 2, ("easy", "multi_similarity")])
def test_those_of_mined_multi_similarity_are_right(mining):
    loss = MultiSimilarityLoss(beta=5.0, miner=Miner(*mining))
    assert_right(lambda z: loss(z, LABELS))


@pytest.mark.parametrize("name", OTHERS)
def test_those_with_references_are_right(name):
    torch.manual_seed(0)
    loss = OTHERS[name](None)

    def against(z, ref):
        return loss(z, LABELS, ref_embeddings=ref, ref_labels=LABELS)

    assert_right(against, rows(), rows(1))


def test_a_gradient_penalty_is_that_of_the_plain_formula():
    """The common use: the norm of the gradient, in the loss; against float64 differences."""

    def plain(z):
        y = unit(z)
        d = distances(y)
        same = LABELS[:, None] == LABELS
        gap = (d[:, :, None] - d[:, None] + 0.4).clamp(min=0)
        mask = (same & ~torch.eye(8, dtype=torch.bool))[:, :, None] & ~same[:, None]
        return gap[mask].mean()

    derivatives = []
    for loss in (lambda z: TripletLoss(margin=0.4, normalize=True)(z, LABELS), plain):
        z = rows()
        (first,) = torch.autograd.grad(loss(z), z, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), z)
        derivatives.append((first.detach(), second))
    for a, b in zip(*derivatives, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("miner", [None, Miner("easy", "hard")])
@pytest.mark.parametrize("name", ["triplet", *OTHERS, *WEIGHTED])
def test_those_of_coinciding_rows_are_finite(name, miner):
    made = {"triplet": lambda m: TripletLoss(margin=0.4, miner=m), **OTHERS, **WEIGHTED}
    loss = made[name](miner)
    z = rows().detach()
    z[1] = z[0]
    z[4] = z[0]
    z[7] = 0.0
    z.requires_grad_()
    (first,) = torch.autograd.grad(loss(z, LABELS), z, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), z)
    assert bool(torch.isfinite(first).all())
    assert bool(torch.isfinite(second).all())
