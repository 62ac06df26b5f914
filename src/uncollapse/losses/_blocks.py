"""Pairs of different classes, a block of anchors at a time: two products for a gradient, no N × N.

Products are of the batch's centred and scaled rows; the few pairs that are close beside the spread
of the batch are measured, and pulled on, by direct differences.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from uncollapse.losses._classwise import SortedClasses
from uncollapse.losses._forces import BLOCK, Forces

__all__ = ["CLOSE", "FAR", "cross_class", "pull_apart"]

FAR = 1e18  # stands for the distance of what is not a negative
# A squared distance below this share of |x|² + |y|² is taken from direct differences: the product
# keeps too few digits of it, for the distance and for its gradient.
CLOSE = {torch.float32: 2e-2, torch.float64: 1e-7}
_TINY = 1e-36  # square roots of exact zeros are slow
_ELEMENTS = 1 << 18  # differences held at a time: 2 MB in float64


def cross_class(
    z: Tensor,
    rows: Tensor,
    classes: SortedClasses,
    weigh: Callable[[int, int, Tensor], Tensor],
) -> Tensor:
    """Gradient of Σ w_ij |rows_i - rows_j| over the pairs of different classes.

    `weigh(start, stop, distances)` returns w for the anchors `start` to `stop`, 0 where a distance
    is `FAR`. It may keep what it returns, but must not keep or change the distances. `z` is `rows`
    in the dtype of the products, both in class order.
    """
    n = len(z)
    norm = torch.linalg.vecdot(z, z)
    share, widest = CLOSE[z.dtype], float(norm.max())
    forces, direct = Forces(z), torch.zeros_like(rows)
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        own = norm[start:stop, None]
        square = torch.addmm(norm, z[start:stop], z.T, alpha=-2.0, out=forces.block(start, stop))
        square.add_(own).scatter_(1, classes.columns(start, stop), FAR * FAR)
        close = _close(square, share, own, norm, widest)
        distance = square.clamp_(min=_TINY).sqrt_()
        if close is not None:
            distance[close] = _direct(rows, close[0] + start, close[1]).to(z.dtype)
        slope = weigh(start, stop, distance)
        if close is not None:
            charge = torch.where(distance[close] > 0, slope[close] / distance[close], 0.0)
            pull_apart(direct, rows, close[0] + start, close[1], charge.to(rows.dtype))
            slope[close] = 0.0
            distance[close] = FAR
        torch.div(slope, distance, out=distance)
        forces.add(start, stop)
    return direct.add_(forces.gradient())


def pull_apart(result: Tensor, rows: Tensor, i: Tensor, j: Tensor, slope: Tensor) -> None:
    """Add the gradient of Σ slope |rows_i - rows_j|² / 2 to `result`, by direct differences."""
    chunk = max(1, _ELEMENTS // rows.shape[1])
    parts = (torch.split(index, chunk) for index in (i, j, slope))
    for a, b, s in zip(*parts, strict=True):
        force = (rows[a] - rows[b]).mul_(s[:, None])
        result.index_add_(0, a, force).index_add_(0, b, force, alpha=-1)


def _close(
    square: Tensor, share: float, own: Tensor, norm: Tensor, widest: float
) -> tuple[Tensor, Tensor] | None:
    """Rows and columns of the close pairs; each row's least square decides the common case."""
    if square.device.type == "cpu":
        least = torch.from_numpy(square.numpy().min(axis=1, keepdims=True))
    else:
        least = square.amin(1, keepdim=True)
    if bool((least > share * (own + widest)).all()):
        return None
    rows, columns = (square <= share * (own + norm)).nonzero(as_tuple=True)
    return (rows, columns) if len(rows) else None


def _direct(rows: Tensor, i: Tensor, j: Tensor) -> Tensor:
    chunk = max(1, _ELEMENTS // rows.shape[1])
    parts = zip(torch.split(i, chunk), torch.split(j, chunk), strict=True)
    return torch.cat([torch.linalg.vector_norm(rows[a] - rows[b], dim=1) for a, b in parts])
