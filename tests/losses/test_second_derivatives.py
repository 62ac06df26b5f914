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
MINERS = [None, Miner("easy", "hard"), Miner("hard", "semihard"), Miner("all", "all")]


def rows(seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(8, 3, generator=g, dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("miner", MINERS, ids=["unmined", "easy hard", "hard semihard", "all all"])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("scale_free", [False, True, "hardest-negative"])
@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "nonzero", "max"])
def test_those_of_the_triplet_loss_are_right(reduction, soft, scale_free, normalize, miner):
    loss = TripletLoss(
        margin=0.4,
        miner=miner,
        reduction=reduction,
        soft=soft,
        scale_free=scale_free,
        normalize=normalize,
    )
    assert gradgradcheck(lambda z: loss(z, LABELS), rows(), fast_mode=True, atol=1e-4)


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


@pytest.mark.parametrize("miner", MINERS, ids=["unmined", "easy hard", "hard semihard", "all all"])
@pytest.mark.parametrize("name", OTHERS)
def test_those_of_every_other_loss_are_right(name, miner):
    torch.manual_seed(0)
    loss = OTHERS[name](miner)
    assert gradgradcheck(lambda z: loss(z, LABELS), rows(), fast_mode=True, atol=1e-4)


@pytest.mark.parametrize("mining", [("multi_similarity",) * 2, ("easy", "multi_similarity")])
def test_those_of_mined_multi_similarity_are_right(mining):
    loss = MultiSimilarityLoss(beta=5.0, miner=Miner(*mining))
    assert gradgradcheck(lambda z: loss(z, LABELS), rows(), fast_mode=True, atol=1e-4)


@pytest.mark.parametrize("name", OTHERS)
def test_those_with_references_are_right(name):
    torch.manual_seed(0)
    loss = OTHERS[name](None)
    reference = rows(1)

    def against(z, ref):
        return loss(z, LABELS, ref_embeddings=ref, ref_labels=LABELS)

    assert gradgradcheck(against, (rows(), reference), fast_mode=True, atol=1e-4)


def test_a_gradient_penalty_is_that_of_the_plain_formula():
    """The common use: the norm of the gradient, in the loss; against float64 differences."""

    def plain(z):
        y = unit(z)
        d = distances(y)
        same = LABELS[:, None] == LABELS
        gap = (d[:, :, None] - d[:, None] + 0.4).clamp(min=0)
        mask = (same & ~torch.eye(8, dtype=torch.bool))[:, :, None] & ~same[:, None]
        return gap[mask].mean()

    found = []
    for loss in (lambda z: TripletLoss(margin=0.4, normalize=True)(z, LABELS), plain):
        z = rows()
        (first,) = torch.autograd.grad(loss(z), z, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), z)
        found.append((first.detach(), second))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("miner", MINERS[:2], ids=["unmined", "easy hard"])
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
