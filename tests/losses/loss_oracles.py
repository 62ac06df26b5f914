"""Slow float64 oracles, written from the papers, and batches that are hard on distances."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from uncollapse.losses import (
    ArcFaceLoss,
    CircleLoss,
    ContrastiveLoss,
    CosFaceLoss,
    MarginLoss,
    MultiSimilarityLoss,
    NPairLoss,
    NTXentLoss,
    ProxyAnchorLoss,
    ProxyNCALoss,
    SmoothAPLoss,
    SoftTripleLoss,
    SpreadLoss,
    SupConLoss,
    TripletLoss,
)
from uncollapse.mining import Miner

Batch = tuple[Tensor, Tensor]


def distances(y: Tensor) -> Tensor:
    """All distances by direct differences, with subgradient 0 at 0."""
    square = (y[:, None] - y[None]).square().sum(-1)
    return torch.where(square > 0, square, torch.ones_like(square)).sqrt() * (square > 0)


def unit(x: Tensor) -> Tensor:
    norm = x.square().sum(1, keepdim=True)
    return x / torch.where(norm > 0, norm, torch.ones_like(norm)).sqrt()


def triplets(labels: Tensor) -> list[tuple[int, int, int]]:
    rows = range(len(labels))
    return [
        (a, p, n)
        for a in rows
        for p in rows
        for n in rows
        if a != p and labels[a] == labels[p] and labels[a] != labels[n]
    ]


def oracle(loss: Callable[[Tensor], Tensor], x: Tensor) -> tuple[float, Tensor]:
    """Value and gradient in float64."""
    wide = x.detach().double().requires_grad_()
    value = loss(wide)
    gradient = torch.zeros_like(wide)
    if value.requires_grad:
        (gradient,) = torch.autograd.grad(value, wide, allow_unused=True)
    return value.item(), torch.zeros_like(wide) if gradient is None else gradient


def measured(loss: Callable[[Tensor], Tensor], x: Tensor) -> tuple[float, Tensor]:
    """Value and gradient of the product's loss; its gradient has the input's dtype."""
    leaf = x.detach().clone().requires_grad_()
    value = loss(leaf)
    value.backward()
    assert leaf.grad is not None
    assert leaf.grad.dtype == x.dtype
    return value.item(), leaf.grad.double()


def assert_same(
    ours: Callable[[Tensor], Tensor],
    theirs: Callable[[Tensor], Tensor],
    x: Tensor,
    tolerance: float = 1e-5,
) -> None:
    value, gradient = measured(ours, x)
    true_value, true_gradient = oracle(theirs, x)
    scale = max(float(true_gradient.norm()), 1e-3)
    np.testing.assert_allclose(value, true_value, rtol=tolerance, atol=tolerance)
    assert float((gradient - true_gradient).norm()) <= tolerance * scale


@st.composite
def batches(draw: st.DrawFn, grid: bool = False) -> Batch:
    """Float64 rows with labels: duplicates, singletons, one class, tight, far from the origin.

    `grid` puts them on whole numbers, so that distances tie exactly.
    """
    n, dim = draw(st.integers(1, 10)), draw(st.integers(1, 4))
    seed = draw(st.integers(0, 2**31))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, draw(st.integers(1, 4)), (n,), generator=generator)
    if grid:
        x = torch.randint(-2, 3, (n, dim), generator=generator).double()
    else:
        x = torch.randn(n, dim, generator=generator, dtype=torch.float64)
        kind = draw(st.sampled_from(["plain", "duplicates", "tight classes", "offset", "equal"]))
        if kind == "duplicates":
            x = x[torch.randint(0, max(n // 2, 1), (n,), generator=generator)]
        elif kind == "tight classes":
            x = 1e-4 * x + torch.randn(4, dim, generator=generator, dtype=torch.float64)[labels]
        elif kind == "offset":
            x = 1e-3 * x + 5.0
        elif kind == "equal":
            x = x[:1].expand(n, dim).clone()
    return x, labels


def sets(labels, n, tuples=None):
    """Positives and negatives of each anchor, from all pairs or from named triplets."""
    rows = range(n)
    if tuples is None:
        return [
            (
                [j for j in rows if j != i and labels[j] == labels[i]],
                [j for j in rows if labels[j] != labels[i]],
            )
            for i in rows
        ]
    named = list(zip(*(t.tolist() for t in tuples), strict=True))
    return [
        (sorted({p for a, p, _ in named if a == i}), sorted({k for a, _, k in named if a == i}))
        for i in rows
    ]


def mean(values, like):
    return torch.stack(values).mean() if values else like.sum() * 0


MINERS = st.sampled_from(
    [
        None,
        Miner("easy", "hard"),
        Miner("easy", "all"),
        Miner("all", "all"),
        Miner("multi_similarity", "multi_similarity"),
        Miner("easy", "multi_similarity"),
        Miner("all", "multi_similarity"),
    ]
)


def clouds(n=200, k=4, dim=16, seed=0, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    labels = (torch.arange(n) // k)[torch.randperm(n, generator=g)]
    x = torch.randn(n, dim, generator=g, dtype=torch.float64)
    return (x + torch.randn(n, dim, generator=g, dtype=torch.float64)[labels]).to(dtype), labels


EVERY_LOSS = [
    ContrastiveLoss(),
    TripletLoss(margin=0.2),
    MarginLoss(),
    MultiSimilarityLoss(),
    ProxyNCALoss(num_classes=4, dim=6),
    NPairLoss(),
    SupConLoss(),
    SoftTripleLoss(num_classes=4, dim=6),
    CosFaceLoss(num_classes=4, dim=6),
    ArcFaceLoss(num_classes=4, dim=6),
    NTXentLoss(),
    CircleLoss(),
    ProxyAnchorLoss(num_classes=4, dim=6),
    SmoothAPLoss(),
    SpreadLoss(),
    SpreadLoss(stand_in="self"),
]
