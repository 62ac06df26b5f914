"""What happens to a block between two products, compiled; needs numba (extra `fast`).

Same results as the torch code: `hinge_rows` as `_blocks.cross_class` with `_counting.HingeCount`,
`class_*` as `SortedClasses`, `triplet_*` as `_mined`, `hardest_rows` as `Miner`.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

__all__ = [
    "class_distances",
    "class_gradient",
    "hardest_rows",
    "hinge_rows",
    "triplet_distances",
    "triplet_gradient",
]

Array = np.ndarray[Any, Any]

_PASSES = 24
_CHUNK = 256
# Sums may be reordered, and there are no NaNs; infinities keep their meaning.
_fast = numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp", "nnan"})


@_fast
def class_distances(rows: Array, low: Array, high: Array, table: Array) -> None:
    """Fill the real entries of a table of distances inside the classes."""
    for i in range(len(rows)):
        first = low[i]
        for j in range(i + 1, high[i]):
            distance = np.sqrt(_square(rows[i], rows[j]))
            table[i, j - first] = distance
            table[j, i - first] = distance


@_fast
def class_gradient(
    rows: Array, low: Array, high: Array, weight: Array, table: Array, gradient: Array
) -> None:
    """Add the gradient of Σ weight · distance over a table."""
    for i in range(len(rows)):
        first = low[i]
        for j in range(i + 1, high[i]):
            distance = np.float64(table[i, j - first])
            if distance > 0:
                slope = (weight[i, j - first] + weight[j, i - first]) / distance
                _add_force(gradient, rows, i, j, slope)


@_fast
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
                square = sign * _square(points[i], points[j])
                if square < best:
                    best, found = square, order[j]
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
                        square = _square(points[i], points[j])
                        if square < best or (square == best and order[j] < found):
                            best, found = square, order[j]
        chosen[1, order[i]] = found


@_fast
def triplet_distances(
    rows: Array, anchor: Array, positive: Array, negative: Array, near: Array, far: Array
) -> None:
    """Distances of the triplets' two pairs."""
    for t in range(len(anchor)):
        near[t] = np.sqrt(_square(rows[anchor[t]], rows[positive[t]]))
        far[t] = np.sqrt(_square(rows[anchor[t]], rows[negative[t]]))


@_fast
def triplet_gradient(
    rows: Array,
    anchor: Array,
    positive: Array,
    negative: Array,
    near: Array,
    far: Array,
    weight: Array,
    gradient: Array,
) -> None:
    """Add the gradient of Σ weight · (near - far)."""
    for t in range(len(anchor)):
        if weight[t] != 0:
            if near[t] > 0:
                _add_force(gradient, rows, anchor[t], positive[t], weight[t] / near[t])
            if far[t] > 0:
                _add_force(gradient, rows, anchor[t], negative[t], -weight[t] / far[t])


@_fast
def hinge_rows(
    square: Array,  # [B, N] |z_j|² - 2 z_i·z_j on entry, slopes w / d on exit
    norm: Array,  # [N] |z|²
    start: int,  # first anchor of the block
    low: Array,  # [N] first column of each row's class
    high: Array,  # [N] last column + 1
    positive: Array,  # [N, K] distances to the positives, -inf where there is none
    above: Array,  # [N, K] what a negative must be farther than, with `window`
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
    zero, one = square.dtype.type(0), square.dtype.type(1)
    weight = np.empty(n, square.dtype)
    near = np.empty(n, np.int64)
    push = 0.0
    for b in range(block):
        i = start + b
        row, mine = square[b], norm[i]
        count = zero
        for j in range(n):
            count += one if row[j] + mine <= share * (mine + norm[j]) else zero
        for j in range(low[i], high[i]):
            count -= one if row[j] + mine <= share * (mine + norm[j]) else zero
        found = 0
        if count > zero:
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
            row[j] = np.sqrt(_square(rows[i], rows[j]))
        for j in range(low[i], high[i]):
            row[j] = far
        size = high[i] - low[i]
        if size <= _PASSES:
            for k in range(size):
                least = above[i, k] if window else -one
                most = positive[i, k] + margin
                hits = zero
                if most > zero:
                    for j in range(n):
                        hit = one if (least < row[j]) & (row[j] < most) else zero
                        weight[j] += hit
                        hits += hit
                pull[i, k] = hits
        else:
            _bisect(row, positive[i, :size], above[i, :size], margin, window, weight, pull[i])
        own = 0.0
        for j in range(n):
            push += np.float64(weight[j] * row[j])
        for f in range(found):
            j = near[f]
            if row[j] > 0:
                _add_force(direct, rows, i, j, -np.float64(weight[j]) / row[j])
            weight[j] = zero
            row[j] = far
        for j in range(n):
            slope_j = -weight[j] / row[j]
            row[j] = slope_j
            total[j] += slope_j
            own += np.float64(slope_j)
        total[i] += own
    return push


@_fast
def _square(x: Array, y: Array) -> float:
    total = 0.0
    for k in range(len(x)):
        total += (x[k] - y[k]) ** 2
    return total


@_fast
def _add_force(gradient: Array, rows: Array, i: int, j: int, slope: float) -> None:
    for k in range(rows.shape[1]):
        force = slope * (rows[i, k] - rows[j, k])
        gradient[i, k] += force
        gradient[j, k] -= force


@_fast
def _bisect(
    row: Array,
    positive: Array,
    above: Array,
    margin: Any,
    window: bool,
    weight: Array,
    pull: Array,
) -> None:
    """Counts of one anchor with many positives, from each negative's place among them."""
    order = np.argsort(positive)
    limit = positive[order] + margin
    ordered = above[order]
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
