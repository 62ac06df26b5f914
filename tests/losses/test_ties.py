"""Triplets at the kink of the hinge, and softplus that rounds to 0: rounding decides neither."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from uncollapse._base.extras import without_kernels
from uncollapse.losses import TripletLoss
from uncollapse.mining import Miner


def oracle(
    x: Tensor, y: Tensor, margin: float, *, free: bool, nonzero: bool, soft: bool = False
) -> tuple[float, Tensor]:
    """Float64, by all triplets; at d_ap - d_an + margin = 0 the derivative is 0, as relu's."""
    wide = x.double().requires_grad_()
    square = (wide[:, None] - wide).square().sum(-1)
    safe = torch.where(square > 0, square, torch.ones_like(square))
    d = safe.sqrt() * (square > 0)
    if free:
        d = d / (d.sum() / (len(d) * (len(d) - 1)))
    same = y[:, None] == y
    positive = same & ~torch.eye(len(y), dtype=torch.bool)
    a, p, n = (positive[:, :, None] & ~same[:, None]).nonzero().T
    excess = d[a, p] - d[a, n] + margin
    excess = torch.where(excess.abs() < 1e-9, 0.0, excess)  # a tie, up to float64's own rounding
    loss = functional.softplus(excess) if soft else excess.relu()
    number = (loss > 0).sum().clamp(min=1) if nonzero and not soft else len(loss)
    value = loss.sum() / number
    (gradient,) = torch.autograd.grad(value, wide)
    return value.item(), gradient


def coarse_rows(seed: int, kind: str) -> tuple[Tensor, Tensor]:
    """float32 rows with few different values: most batches hold exact ties."""
    g = torch.Generator().manual_seed(seed)
    n, dim = int(torch.randint(8, 24, (), generator=g)), int(torch.randint(1, 4, (), generator=g))
    labels = torch.arange(n) % 3
    if kind == "grid":
        return torch.randint(-3, 4, (n, dim), generator=g).float(), labels
    return torch.randn(n, dim, generator=g) * 1e-3 + 1e4, labels  # a thousandth is one step there


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("kind", ["grid", "far"])
@pytest.mark.parametrize("free", [True, False])
@given(seed=st.integers(0, 10_000), margin=st.sampled_from([0.0, 0.2, 1.0]), nonzero=st.booleans())
def test_ties_of_coarse_rows_are_not_active(
    kernels: bool, kind: str, free: bool, seed: int, margin: float, nonzero: bool
):
    x, y = coarse_rows(seed, kind)
    if len(torch.unique(x, dim=0)) < 2:
        return
    value, gradient = oracle(x, y, margin, free=free, nonzero=nonzero)
    leaf = x.clone().requires_grad_()
    reduction = "nonzero" if nonzero else "mean"
    with nullcontext() if kernels else without_kernels():
        loss = TripletLoss(margin=margin, scale_free=free, reduction=reduction)(leaf, y)
    loss.backward()
    assert leaf.grad is not None
    np.testing.assert_allclose(loss.item(), value, rtol=2e-5, atol=1e-6)
    size = max(float(gradient.norm()), 1e-3)
    assert float((leaf.grad - gradient).norm()) <= 2e-5 * size


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("miner", [None, Miner("all", "all"), Miner("hard", "hard")])
def test_every_triplet_counts_in_a_nonzero_mean_of_softplus(kernels: bool, miner: Miner | None):
    # Distances of some hundreds: float32 rounds the softplus of most triplets to 0.
    g = torch.Generator().manual_seed(0)
    y = torch.arange(24) % 4
    x = torch.randn(24, 3, generator=g) * 20 + 400 * torch.eye(4, 3)[y] + 30 * (y[:, None] == 3)
    with nullcontext() if kernels else without_kernels():
        some = TripletLoss(margin=0.0, soft=True, reduction="nonzero", miner=miner)
        every = TripletLoss(margin=0.0, soft=True, miner=miner)
        assert some(x, y).item() == every(x, y).item()
        wide, narrow = some(x.double(), y).item(), some(x, y).item()
        assert narrow == pytest.approx(wide, rel=1e-5)
        elements = some.elements(x, y)
        assert some.reduce(elements).item() == pytest.approx(wide, rel=1e-5)
        if miner is None:
            assert (elements.loss == 0).any()
            assert narrow == pytest.approx(
                oracle(x, y, 0.0, free=False, nonzero=True, soft=True)[0], rel=1e-5
            )


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("seed", [0, 1])
def test_ties_of_a_large_grid_are_not_active_and_others_are_left_alone(kernels: bool, seed: int):
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(150) % 5
    for x in (
        torch.randint(-3, 4, (150, 2), generator=g).float(),
        torch.randn(150, 2, generator=g),
    ):
        value, gradient = oracle(x, y, 0.0, free=False, nonzero=False)
        leaf = x.clone().requires_grad_()
        with nullcontext() if kernels else without_kernels():
            loss = TripletLoss(margin=0.0)(leaf, y)
        loss.backward()
        assert leaf.grad is not None
        np.testing.assert_allclose(loss.item(), value, rtol=2e-5, atol=1e-6)
        assert float((leaf.grad - gradient).norm()) <= 2e-5 * float(gradient.norm())
