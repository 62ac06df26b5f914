"""The block between two products of the all-triplets hinge, compiled; needs numba (extra `fast`).

Same results as `_blocks.cross_class` with `_counting.HingeCount`.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

__all__ = ["hinge_rows"]

Array = np.ndarray[Any, Any]

_PASSES = 24


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp"})
def hinge_rows(
    square: Array,  # [B, N] |z_j|² - 2 z_i·z_j on entry, slopes w / d on exit
    norm: Array,  # [N] |z|²
    start: int,  # first anchor of the block
    low: Array,  # [N] first column of each row's class
    high: Array,  # [N] last column + 1
    positive: Array,  # [N, K] distances to the positives, -inf where there is none
    margin: Any,  # in units of z, a scalar of z's dtype
    window: bool,
    share: Any,  # what counts as close, see _blocks.CLOSE
    far: Any,
    rows: Array,  # [N, d] float64
    pull: Array,  # [N, K] out: negatives charged to each positive
    total: Array,  # [N] float64, += sums of slopes over rows and columns
    direct: Array,  # [N, d] float64, += gradient of the close pairs
) -> float:
    """Charge a block of anchors; returns the sum of the charged distances to negatives."""
    block, n = square.shape
    dim = rows.shape[1]
    zero, one = square.dtype.type(0), square.dtype.type(1)
    weight = np.empty(n, square.dtype)
    near = np.empty(n, np.int64)
    push = 0.0
    for b in range(block):
        i = start + b
        row, mine = square[b], norm[i]
        count = 0
        for j in range(n):
            count += row[j] + mine <= share * (mine + norm[j])
        found = 0
        if count > 0:
            for j in range(n):
                outside = j < low[i] or j >= high[i]
                if outside and row[j] + mine <= share * (mine + norm[j]):
                    near[found] = j
                    found += 1
        for j in range(n):
            row[j] = np.sqrt(max(row[j] + mine, zero))
            weight[j] = zero
        for f in range(found):
            j = near[f]
            gap = 0.0
            for k in range(dim):
                gap += (rows[i, k] - rows[j, k]) ** 2
            row[j] = np.sqrt(gap)
        for j in range(low[i], high[i]):
            row[j] = far
        size = high[i] - low[i]
        if size <= _PASSES:
            for k in range(size):
                least = positive[i, k] if window else -one
                most = positive[i, k] + margin
                hits = zero
                if most > zero:
                    for j in range(n):
                        hit = one if least < row[j] and row[j] < most else zero
                        weight[j] += hit
                        hits += hit
                pull[i, k] = hits
        else:
            _bisect(row, positive[i, :size], margin, window, weight, pull[i])
        own = 0.0
        for j in range(n):
            push += np.float64(weight[j] * row[j])
        for f in range(found):
            j = near[f]
            if row[j] > 0:
                slope = -np.float64(weight[j]) / row[j]
                for k in range(dim):
                    force = slope * (rows[i, k] - rows[j, k])
                    direct[i, k] += force
                    direct[j, k] -= force
            weight[j] = zero
            row[j] = far
        for j in range(n):
            slope_j = -weight[j] / row[j]
            row[j] = slope_j
            total[j] += slope_j
            own += np.float64(slope_j)
        total[i] += own
    return push


@numba.njit(cache=True, nogil=True)
def _bisect(
    row: Array, positive: Array, margin: Any, window: bool, weight: Array, pull: Array
) -> None:
    """Counts of one anchor with many positives, from each negative's place among them."""
    order = np.argsort(positive)
    ordered = positive[order]
    limit = ordered + margin
    width = len(order)
    below = np.zeros(width + 1, np.int64)
    for j in range(len(row)):
        place = np.searchsorted(limit, row[j], side="right")
        passed = np.searchsorted(ordered, row[j], side="left") if window else width
        below[place] += 1
        below[passed] -= 1
        weight[j] = max(passed - place, 0)
    running = 0
    for k in range(width):
        running += below[k]
        pull[order[k]] = max(running, 0)
