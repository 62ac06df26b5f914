"""One tester for losses that pytorch-metric-learning has too: value and gradients, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pytorch_metric_learning import miners as pml_miners
from torch import Tensor, nn

from losses.loss_oracles import measured
from uncollapse.losses.proxies import ProxyLoss

PML_MINED = pml_miners.MultiSimilarityMiner(0.1)
PML_EASY = pml_miners.BatchEasyHardMiner("easy", "hard")
MINED = pytest.mark.parametrize("mined", [None, PML_MINED, PML_EASY], ids=["all", "pairs", "easy"])


def pml_batch(n: int = 40, dim: int = 8) -> tuple[Tensor, Tensor]:
    """Classes of four that overlap, in order."""
    g = torch.Generator().manual_seed(1)
    labels = torch.arange(n) // 4
    x = torch.randn(n, dim, generator=g) + torch.randn(n, dim, generator=g)[labels]
    return x.double(), labels


def give_proxies(ours: ProxyLoss, theirs: nn.Module) -> str:
    """The same learned class vectors, in PML's name and shape for them; its name."""
    flat = ours.proxies.detach().flatten(0, 1).double()
    (name,) = {"proxies", "W", "fc"} & dict(theirs.named_parameters()).keys()
    setattr(theirs, name, nn.Parameter(flat.clone() if name == "proxies" else flat.T.clone()))
    return name


def assert_is_pml_s(
    ours: nn.Module,
    theirs: nn.Module,
    batch: tuple[Tensor, Tensor] | None = None,
    mined: Callable[..., Any] | None = None,
    tolerance: float = 1e-7,
    **references: Tensor,
) -> None:
    """Same value, same gradient of the embeddings and of the proxies if there are any."""
    x, labels = batch or pml_batch()
    tuples = None if mined is None else mined(x, labels)
    proxies = give_proxies(ours, theirs) if isinstance(ours, ProxyLoss) else None
    a, b = (measured(lambda z, f=f: f(z, labels, tuples, **references), x) for f in (ours, theirs))
    assert a[0] == pytest.approx(b[0], rel=tolerance)
    torch.testing.assert_close(a[1], b[1], rtol=tolerance, atol=0.01 * tolerance)
    if proxies is not None:
        found, peer = ours.proxies.grad.flatten(0, 1).double(), getattr(theirs, proxies).grad
        peer = peer if proxies == "proxies" else peer.T
        torch.testing.assert_close(found, peer, rtol=1e-5, atol=1e-6)  # ours is float32
