"""Easy or hard positives with hard negatives, mined in the loss's own frame, compiled."""

from __future__ import annotations

import math

import torch

from uncollapse._base.classes import ClassLayout
from uncollapse.losses._engine import compiled
from uncollapse.losses._forces import BLOCK
from uncollapse.losses._frame import Frame
from uncollapse.mining import Triplets

__all__ = ["hardest_pairs"]


def hardest_pairs(frame: Frame, layout: ClassLayout, positives: str) -> Triplets | None:
    """`Miner(positives, "hard")` of the batch, `positives` "easy" or "hard"; None without numba.

    One product, read once. A product of float32 rows only proposes: whatever is within its
    rounding error of the nearest is measured by float64 differences.
    """
    kernels = compiled(frame.rows)
    if kernels is None or frame.unit == 0.0:
        return None
    z = frame.z
    n, dim = z.shape
    norm = torch.linalg.vecdot(z, z)
    number = z.numpy().dtype.type
    radius = math.sqrt(float(norm.max()))
    # Twice the error of a product: some eight standard deviations of what rounding does.
    rounding = torch.finfo(z.dtype).eps * radius
    error = (number((4 * math.sqrt(dim) + 16) * rounding), number(4 * radius * rounding))
    chosen = torch.empty(2, n, dtype=torch.int64)
    value = torch.empty(min(BLOCK, n), n, dtype=z.dtype)
    classes = (layout.ids, layout.order, layout.starts, layout.counts)
    for start in range(0, n, BLOCK):
        rows = z[start : start + BLOCK]
        block = torch.addmm(norm, rows, z.T, alpha=-2.0, out=value[: len(rows)])
        kernels.hardest_rows(
            block.numpy(),
            start,
            *classes,
            norm.numpy(),
            error,
            frame.y.numpy(),
            positives == "hard",
            chosen.numpy(),
        )
    anchor = torch.arange(n)
    if not layout.usable.all():
        anchor = torch.from_numpy(layout.usable).nonzero().flatten()
        chosen = chosen[:, anchor]
    return Triplets(anchor, chosen[0], chosen[1])
