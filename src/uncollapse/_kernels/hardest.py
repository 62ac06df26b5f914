"""Each anchor's hardest pairs, as `Miner(..., "hard")` would choose them."""

from __future__ import annotations

from typing import Any

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse._kernels.loops import fast, square

__all__ = ["hardest_rows"]

_CHUNK = 32  # columns whose least value is kept


@fast
def hardest_rows(
    value: Array,  # [B, N] |z_j|² - 2 z_i·z_j; overwritten
    start: int,  # first anchor of the block
    ids: Array,  # [N] class numbers
    order: Array,  # [N] rows class by class, class c from starts[c] on, ascending
    starts: Array,
    counts: Array,
    norm: Array,  # [N] |z|²
    error: tuple[Any, Any],  # a value of row i is right to error[0] |z_i| + error[1], over 2
    points: Array,  # [N, d] float64
    farthest: bool,  # the farthest positive, else the nearest
    chosen: Array,  # [2, N] out: positive and negative of each row, -1 for none
) -> None:
    """Each anchor's farthest or nearest positive and nearest negative, by exact differences."""
    block, n = value.shape
    sign = -1.0 if farthest else 1.0
    lowest = np.empty((n + _CHUNK - 1) // _CHUNK, value.dtype)
    for b in range(block):
        i = start + b
        row, own = value[b], ids[i]
        best, found = np.inf, -1
        for j in order[starts[own] : starts[own] + counts[own]]:
            row[j] = np.inf
            if j != i:
                gap = sign * square(points[i], points[j])
                if gap < best:
                    best, found = gap, j
        chosen[0, i] = found
        least = row[0]
        for c in range(len(lowest)):
            part = row[c * _CHUNK]
            for j in range(c * _CHUNK, min(n, c * _CHUNK + _CHUNK)):
                part = min(part, row[j])
            lowest[c] = part
            least = min(least, part)
        limit = least + error[0] * np.sqrt(norm[i]) + error[1]
        best, found = np.inf, -1
        for c in range(len(lowest)):
            if lowest[c] <= limit and least < np.inf:
                for j in range(c * _CHUNK, min(n, c * _CHUNK + _CHUNK)):
                    if row[j] <= limit:
                        gap = square(points[i], points[j])
                        if gap < best:
                            best, found = gap, j
        chosen[1, i] = found
