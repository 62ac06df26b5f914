"""All triplets of a batch without listing them: value and gradient by counting.

For an anchor with positives at d_k and negatives at d_j, a hinge needs only the number of negatives
nearer than d_k + margin, and for each negative the number of positives it is charged with. That is
O(N²·min(K, log K)) time beside the N × N products, and O(N·K) memory (see `_forces`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from uncollapse.losses._blocks import CLOSE, FAR, cross_class
from uncollapse.losses._classwise import SortedClasses
from uncollapse.losses._counting import HingeCount, SoftCount
from uncollapse.losses._engine import compiled
from uncollapse.losses._forces import BLOCK, Forces
from uncollapse.losses._frame import Frame

__all__ = ["Charge", "all_triplets"]


class Charge(NamedTuple):
    """A loss of a batch and its gradient with respect to `frame.unit · frame.rows`."""

    value: float
    gradient: Tensor


def all_triplets(
    frame: Frame,
    classes: SortedClasses,
    margin: float,
    *,
    soft: bool = False,
    window: bool = False,
    nonzero: bool = False,
    engine: str = "auto",
) -> Charge:
    """Mean over all triplets of [d_ap - d_an + margin]₊, or of its softplus when `soft`.

    `window` keeps only the semi-hard triplets, d_ap < d_an < d_ap + margin. `nonzero` divides by
    the number of triplets with a positive loss instead of by that of all. `engine` is "torch",
    "numba", or "auto": numba for a hinge on a CPU where it is installed.
    """
    nothing = Charge(0.0, torch.zeros_like(frame.rows))
    if classes.triplets == 0:
        return nothing
    if frame.unit == 0.0:  # all distances are 0
        flat = margin + math.log1p(math.exp(-margin)) if soft else margin
        return nothing if window else Charge(flat, nothing.gradient)
    rows, z = frame.rows[classes.order], frame.z[classes.order]
    positive = classes.distances(rows, z.dtype, engine)
    kernels = compiled(rows, engine)
    if soft:
        count: SoftCount | HingeCount = SoftCount(positive, frame.unit, margin)
    else:
        count = HingeCount(positive, frame.unit, margin, window)
    if kernels is not None and isinstance(count, HingeCount):
        gradient = _hinge(kernels, z, rows, classes, count)
    else:
        gradient = cross_class(z, rows, classes, count)
    tuples = classes.triplets
    if isinstance(count, HingeCount) and (nonzero or window):
        tuples = count.active
    if tuples == 0:
        return nothing
    gradient += classes.gradient(rows, count.pull, positive, engine)
    result = torch.empty_like(gradient)
    result[classes.order] = gradient.div_(tuples)
    return Charge(count.total / tuples, result)


def _hinge(
    kernels: Any,
    z: Tensor,
    rows: Tensor,
    classes: SortedClasses,
    count: HingeCount,
) -> Tensor:
    """`cross_class(z, rows, classes, count)` with the compiled kernel between the products."""
    n = len(z)
    norm = torch.linalg.vecdot(z, z)
    number = z.numpy().dtype.type
    margin = number(min(count.margin / count.unit, FAR / 10))
    forces, direct = Forces(z), torch.zeros_like(rows)
    low = count.positive if count.low is None else count.low
    shared = [*classes.bounds, count.positive.numpy(), low.numpy()]
    out = [x.numpy() for x in (rows, count.pull, direct)]
    settings = (margin, count.low is not None, number(CLOSE[z.dtype]), number(FAR))
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        slope = forces.block(start, stop)
        torch.addmm(norm, z[start:stop], z.T, alpha=-2.0, out=slope)
        count.push += kernels.hinge_rows(
            slope.numpy(), norm.numpy(), start, *shared, *settings, *out
        )
        forces.add(start, stop)
    return direct.add_(forces.gradient())
