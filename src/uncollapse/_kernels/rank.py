"""Compiled scan of a tile of squared distances: how many negatives precede each positive.

The same steps as `_tiles`, which needs no compiler; both are exact, so they agree.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np

from uncollapse._base.arrays import Array

__all__ = ["SHORT", "Points", "Progress", "own_squares", "scan"]

F = TypeVar("F", bound=Callable[..., Any])
SHORT = 32  # longer lists are sorted faster by NumPy
_FEW, _LINEAR = 4, 160


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
    """Exact squared distances of the queries [low, high) to their positives, short lists sorted."""
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
        if start[q - low + 1] - start[q - low] < SHORT:
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
def _none_below(row: Array, offset: Array, most: float) -> bool:
    """Whether every `row[j] + offset[j]` is above `most`."""
    count = np.int32(0)
    for j in range(len(row)):
        count += np.int32(row[j] + offset[j] <= most)
    return bool(count == 0)


@_compiled
def _finish(nearer: Array, q0: int, strip: Progress) -> None:
    """Add what certainly precedes every positive; drop positives whose rank passed the limit."""
    live, start, fresh, hist = strip.live, strip.start, strip.fresh, strip.hist
    for n in range(len(nearer)):
        q = q0 + n
        if nearer[n] > 0:
            hist[start[q]] += nearer[n]
            fresh[q] += nearer[n]
        if live[q] <= 0 or fresh[q] <= live[q]:
            continue
        fresh[q] = 0
        before = 0
        for k in range(live[q] + 1):
            before += hist[start[q] + k]
            if k + before >= strip.limit[q]:
                live[q] = max(k - 1, 0)
                strip.cap[q] = strip.threshold[start[q] + live[q]] * 1.000001
                break


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
    threshold, hist, fresh = strip.threshold, strip.hist, strip.fresh
    norms, band = y.norms[column0 : column0 + columns], y.band[column0 : column0 + columns]
    y_low, y_high = norms - band, norms + band
    certainly = np.zeros(rows, np.int32)
    looked, empty = 0, 0
    for i in range(rows):
        position = row0 + i
        row = tile[i]
        first = max(own_low[position] - column0, 0)
        for j in range(first, min(own_high[position] - column0, columns)):
            row[j] = np.inf
        q = position - strip0
        x_low, x_high = x.norms[position] - x.band[position], x.norms[position] + x.band[position]
        sure, cap = strip.sure[q], strip.cap[q]
        # Most rows have nothing near once some neighbours are known: seen at a quarter of the cost.
        if 2 * empty >= looked:
            looked += 1
            if _none_below(row, y_low, cap - x_low):
                empty += 1
                continue
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
                    hist[k] += 1
                    fresh[q] += 1
        certainly[i] = nearer
    _finish(certainly, row0 - strip0, strip)


@_compiled
def scan_columns(
    tile: Array, row0: int, column0: int, x: Points, strip: Progress, pairs: Array, grouped: Array
) -> None:
    """The same tile with its columns as queries: one set, all of it in one strip.

    What is not certain is listed row by row and then settled column by column, so that each
    query's thresholds are fetched once.
    """
    rows, columns = tile.shape
    flag = np.zeros((columns + 7) // 8 * 8, np.uint8)
    word = flag.view(np.uint64)
    listed = np.empty(columns + 1, np.int64)
    threshold, hist, fresh = strip.threshold, strip.hist, strip.fresh
    norms, band = x.norms[column0 : column0 + columns], x.band[column0 : column0 + columns]
    q_low, q_high = norms - band, norms + band
    sure = strip.sure[column0 : column0 + columns]
    cap = strip.cap[column0 : column0 + columns]
    nearer = np.zeros(columns, np.int32)
    place = np.zeros(columns + 1, np.int64)
    room = q_low - cap
    total, looked, empty = 0, 0, 0
    for i in range(rows):
        position = row0 + i
        row = tile[i]
        g_low, g_high = x.norms[position] - x.band[position], x.norms[position] + x.band[position]
        if 2 * empty >= looked:
            looked += 1
            if _none_below(row, room, -g_low):
                empty += 1
                continue
        count = np.int32(0)
        for j in range(columns):
            certain = row[j] + g_high + q_high[j] < sure[j]
            possible = row[j] + g_low + q_low[j] <= cap[j]
            nearer[j] += np.int32(certain)
            count += np.int32(possible) - np.int32(certain)
            flag[j] = np.uint8(possible) ^ np.uint8(certain)
        if count > 0:
            _flagged(flag, word, columns, count, listed)
            for n in range(count):
                pairs[total] = (i << 16) + listed[n]
                place[listed[n] + 1] += 1
                total += 1
    for j in range(columns):
        place[j + 1] += place[j]
    for n in range(total):
        j = pairs[n] & 0xFFFF
        grouped[place[j]] = pairs[n] >> 16
        place[j] += 1
    first = 0
    for j in range(columns):
        q = column0 + j
        begin, end = strip.start[q], strip.start[q] + strip.live[q] + 1
        for n in range(first, place[j]):
            i = grouped[n]
            other = row0 + i
            low = tile[i, j] + (x.norms[other] - x.band[other]) + q_low[j]
            high = tile[i, j] + (x.norms[other] + x.band[other]) + q_high[j]
            k = _first_at_least(threshold, begin, end, low)
            if k < end and threshold[k] <= high:
                k = _first_at_least(threshold, k, end, _square(x, q, x, other))
            if k < end:
                hist[k] += 1
                fresh[q] += 1
        first = place[j]
    _finish(nearer, column0, strip)
