"""Each anchor's hardest pairs, as `Miner(..., "hard")` would choose them."""

from __future__ import annotations

from typing import Any

import numpy as np

from uncollapse.losses._compiled._base import Array, fast, square

__all__ = ["hardest_rows"]

_CHUNK = 256


@fast
def hardest_rows(
    value: Array,  # [B, N] |z_j|² - 2 z_i·z_j
    start: int,
    low: Array,
    high: Array,
    order: Array,  # [N] the rows' numbers in the batch: of equals the lowest is taken
    norm: Array,  # [N] |z|²
    error: tuple[Any, Any],  # a value of row i is right to error[0] |z_i| + error[1], over 2
    points: Array,  # [N, d] float64, in class order as everything so far
    farthest: bool,  # the farthest positive, else the nearest
    chosen: Array,  # [2, N] out: positive and negative of each row of the batch, -1 for none
) -> None:
    """Each anchor's farthest or nearest positive and nearest negative, by exact differences."""
    block, n = value.shape
    sign = -1.0 if farthest else 1.0
    lowest = np.empty((n + _CHUNK - 1) // _CHUNK, value.dtype)
    for b in range(block):
        i = start + b
        row = value[b]
        best, found = np.inf, -1
        for j in range(low[i], high[i]):
            if j != i:
                gap = sign * square(points[i], points[j])
                if gap < best:
                    best, found = gap, order[j]
        chosen[0, order[i]] = found
        for j in range(low[i], high[i]):
            row[j] = np.inf
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
                        if gap < best or (gap == best and order[j] < found):
                            best, found = gap, order[j]
        chosen[1, order[i]] = found
