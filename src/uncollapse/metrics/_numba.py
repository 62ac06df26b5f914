"""Compiled scan of a tile of squared distances: how many negatives precede each positive.

The same steps as `_tiles`, which needs no compiler; both are exact, so they agree.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np

__all__ = ["Points", "Progress", "own_squares", "scan"]

Array = np.ndarray[Any, Any]
F = TypeVar("F", bound=Callable[..., Any])
_FEW, _LINEAR = 8, 160


class Points(NamedTuple):
    """Arrays of a `Side`."""

    rows: Array
    order: Array
    factor: Array
    norms: Array
    band: Array
    twin: Array


class Progress(NamedTuple):
    """Arrays of a `Strip`: what is known so far about its queries."""

    sure: Array
    cap: Array
    live: Array
    start: Array
    threshold: Array
    hist: Array
    fresh: Array
    limit: Array


def _compiled(function: F) -> F:
    """numba.njit; sums may be reordered (SIMD), products may not be fused (a - a must be 0)."""
    jit: Any = partial(numba.njit, nogil=True, fastmath={"reassoc", "nsz"})
    try:
        return cast(F, jit(function, cache=True))
    except RuntimeError:  # nowhere to write the cache
        return cast(F, jit(function))


@_compiled
def _square(x: Points, i: int, y: Points, j: int) -> float:
    if x.twin[i] == y.twin[j]:
        return 0.0
    a, b = x.order[i], y.order[j]
    total = 0.0
    for k in range(x.rows.shape[1]):
        gap = np.float64(x.rows[a, k]) * x.factor[i] - np.float64(y.rows[b, k]) * y.factor[j]
        total += gap * gap
    return total


@_compiled
def own_squares(
    x: Points, y: Points, low: int, high: int, own_low: Array, own_high: Array,
    x_skip: Array, y_skip: Array, same: bool, start: Array, out: Array,
) -> None:  # fmt: skip
    """Sorted exact squared distances from each query of [low, high) to its positives."""
    for q in range(low, high):
        if same and low == 0 and high == len(own_low):  # each pair of one set serves both
            for g in range(q + 1, own_high[q]):
                square = _square(x, q, y, g)
                out[start[q] + g - 1 - own_low[q]] = square
                out[start[g] + q - own_low[q]] = square
        else:
            place = start[q - low]
            for g in range(own_low[q], own_high[q]):
                if x_skip[q] != y_skip[g]:
                    out[place] = _square(x, q, y, g)
                    place += 1
        out[start[q - low] : start[q - low + 1]].sort()


@_compiled
def _first_at_least(values: Array, low: int, high: int, value: float) -> int:
    """First index in [low, high) whose value is at least `value`, else high."""
    while high - low > _LINEAR:
        middle = (low + high) // 2
        if values[middle] >= value:
            high = middle
        else:
            low = middle + 1
    # Counting all of a short range in SIMD beats halving it with mispredicted branches.
    short, smaller = values[low:high], 0
    for k in range(len(short)):
        smaller += short[k] < value
    return low + smaller


@_compiled
def _flagged(flag: Array, word: Array, columns: int, expected: np.int32, out: Array) -> None:
    """List the columns whose flag is set."""
    count = 0
    if expected < _FEW:
        for w in range(len(word)):
            if word[w] != 0:
                for j in range(8 * w, min(8 * w + 8, columns)):
                    if flag[j] != 0:
                        out[count] = j
                        count += 1
    else:  # without branches, which would be mispredicted
        for j in range(columns):
            out[count] = j
            count += flag[j]


@_compiled
def _finish(nearer: np.int32, strip: Progress, q: int) -> None:
    """Add what certainly precedes every positive; drop positives whose rank passed the limit."""
    if nearer > 0:
        strip.hist[strip.start[q]] += nearer
        strip.fresh[q] += nearer
    if strip.live[q] <= 0 or strip.fresh[q] <= strip.live[q]:
        return
    strip.fresh[q] = 0
    before = 0
    for k in range(strip.live[q] + 1):
        before += strip.hist[strip.start[q] + k]
        if k + before >= strip.limit[q]:
            strip.live[q] = max(k - 1, 0)
            strip.cap[q] = strip.threshold[strip.start[q] + strip.live[q]] * 1.000001
            return


@_compiled
def scan(
    tile: Array, row0: int, column0: int, x: Points, y: Points, own_low: Array, own_high: Array,
    strip0: int, strip: Progress,
) -> None:  # fmt: skip
    """The tile's rows are queries; `tile[i, j]` is -2 x·y. Own classes are made infinite."""
    rows, columns = tile.shape
    flag = np.zeros((columns + 7) // 8 * 8, np.uint8)
    word = flag.view(np.uint64)  # eight flags at a time: few are set
    listed = np.empty(columns + 1, np.int64)
    threshold = strip.threshold
    norms, band = y.norms[column0 : column0 + columns], y.band[column0 : column0 + columns]
    y_low, y_high = norms - band, norms + band
    for i in range(rows):
        position = row0 + i
        row = tile[i]
        first = max(own_low[position] - column0, 0)
        for j in range(first, min(own_high[position] - column0, columns)):
            row[j] = np.inf
        q = position - strip0
        x_low, x_high = x.norms[position] - x.band[position], x.norms[position] + x.band[position]
        sure, cap = strip.sure[q], strip.cap[q]
        nearer, maybe = np.int32(0), np.int32(0)
        for j in range(columns):
            certain = row[j] + x_high + y_high[j] < sure
            possible = row[j] + x_low + y_low[j] <= cap
            nearer += np.int32(certain)
            maybe += np.int32(possible)
            flag[j] = np.uint8(possible) ^ np.uint8(certain)
        if nearer != maybe:
            # Count each such negative at the first positive it precedes.
            _flagged(flag, word, columns, maybe - nearer, listed)
            begin, end = strip.start[q], strip.start[q] + strip.live[q] + 1
            for n in range(maybe - nearer):
                j = listed[n]
                k = _first_at_least(threshold, begin, end, row[j] + x_low + y_low[j])
                if k < end and threshold[k] <= row[j] + x_high + y_high[j]:
                    square = _square(x, position, y, column0 + j)
                    k = _first_at_least(threshold, k, end, square)
                if k < end:
                    strip.hist[k] += 1
                    strip.fresh[q] += 1
        _finish(nearer, strip, q)
