"""The common choices for a whole batch by numba's kernel; its doubts are settled by `compose`."""

from __future__ import annotations

import numpy as np
import torch

from uncollapse.mining import _fast
from uncollapse.mining._batch import Batch
from uncollapse.mining._compose import compose
from uncollapse.mining.negatives import Settings
from uncollapse.mining.triplets import Triplets

__all__ = ["at_once"]


def at_once(positives: str, negatives: str, batch: Batch, settings: Settings) -> Triplets | None:
    """Triplets of the batch, or None where there is no kernel for them."""
    semihard = negatives == "semihard" and settings.fallback == "nearest-outside"
    if _fast.kernels is None or batch.device.type != "cpu":
        return None
    if positives not in ("easy", "hard") or not (semihard or negatives == "hard"):
        return None
    frame, layout, n = batch.plain, batch.layout, batch.layout.size
    product = frame.coarse
    if frame.collapsed or product.rows.dtype != torch.float32:
        return None
    classes = layout.ids, layout.order, layout.starts, layout.counts
    rounding = product.error.numpy(), product.square.numpy(), frame.given.numpy(), frame.scale
    positive, negative = np.empty(n, np.int64), np.empty(n, np.int64)
    found, doubtful = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    chosen = positive, negative, found, doubtful
    buffer = torch.empty(batch.step, n)
    for first in range(0, n, batch.step):
        values = product.block(slice(first, first + batch.step), buffer).numpy()
        _fast.kernels.choose(
            values, first, classes, *rounding, positives == "hard", semihard, chosen
        )
    if doubtful.any():
        again = np.flatnonzero(doubtful)
        found[again] = False
        for block in batch.blocks(None, again):
            a, p, m = (index.numpy() for index in compose(positives, negatives, block, settings))
            positive[a], negative[a], found[a] = p, m, True
    anchor = np.flatnonzero(found)
    if len(anchor) < n:
        positive, negative = positive[anchor], negative[anchor]
    return Triplets(*map(torch.from_numpy, (anchor, positive, negative)))
