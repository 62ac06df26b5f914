"""Slow float64 oracles, written from the papers, and batches that are hard on distances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from uncollapse.losses import SpreadLoss, TupleLoss
from uncollapse.losses.registry import LOSSES, make_loss
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


def makers(
    num_classes: int = 4, dim: int = 6, *, gentle: bool = False
) -> dict[str, Callable[..., TupleLoss]]:
    """What makes each loss of the registry, from settings, by its name in a config.

    With `gentle`, at settings where differences tell its derivatives.
    """

    def maker(kind: type[TupleLoss]) -> Callable[..., TupleLoss]:
        def make(miner: Miner | None = None, **settings: Any) -> TupleLoss:
            own = {**(kind.info.gentle if gentle else {}), **settings}
            sizes = {"num_classes": num_classes, "dim": dim}
            seeded = torch.Generator().manual_seed(0)
            return make_loss(kind, own, miner=miner, generator=seeded, **sizes)

        return make

    return {name: maker(kind) for name, kind in LOSSES.items()}


EVERY_LOSS = [*(make() for make in makers().values()), SpreadLoss(stand_in="self")]
