"""Scan of a tile of squared distances: twin of `TorchScan.scan` in `metrics`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse._kernels.class_squares import RankedPoints, pair_square
from uncollapse._kernels.loops import unfused

__all__ = ["StripArrays", "scan_columns", "scan_rows"]

_FEW, _LINEAR = 4, 160


class StripArrays(NamedTuple):
    """Arrays of a `Strip`: what is known so far about its queries."""

    sure: Array
    cap: Array
    live: Array
    start: Array
    threshold: Array
    hist: Array
    fresh: Array
    limit: Array


@unfused
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


@unfused
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


@unfused
def _none_below(row: Array, offset: Array, most: float) -> bool:
    """Whether every `row[j] + offset[j]` is above `most`."""
    count = np.int32(0)
    for j in range(len(row)):
        count += np.int32(row[j] + offset[j] <= most)
    return bool(count == 0)


@unfused
def _finish(nearer: Array, q0: int, strip: StripArrays) -> None:
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


@unfused
def scan_rows(
    tile: Array, row0: int, column0: int, x: RankedPoints, y: RankedPoints,
    own_low: Array, own_high: Array, strip0: int, strip: StripArrays,
) -> None:  # fmt: skip
    """The tile's rows are queries; `tile[i, j]` is |y|² - 2 x·y. Own classes are made infinite."""
    rows, columns = tile.shape
    flag = np.zeros((columns + 7) // 8 * 8, np.uint8)
    word = flag.view(np.uint64)  # eight flags at a time: few are set
    listed = np.empty(columns + 1, np.int64)
    threshold, hist, fresh = strip.threshold, strip.hist, strip.fresh
    band = y.band[column0 : column0 + columns]
    below = -band
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
            if _none_below(row, below, cap - x_low):
                empty += 1
                continue
        nearer, maybe = np.int32(0), np.int32(0)
        for j in range(columns):
            certain = row[j] + x_high + band[j] < sure
            possible = row[j] + x_low + below[j] <= cap
            nearer += np.int32(certain)
            maybe += np.int32(possible)
            flag[j] = np.uint8(possible) ^ np.uint8(certain)
        if nearer != maybe:
            # Count each such negative at the first positive it precedes.
            _flagged(flag, word, columns, maybe - nearer, listed)
            begin, end = strip.start[q], strip.start[q] + strip.live[q] + 1
            for n in range(maybe - nearer):
                j = listed[n]
                k = _first_at_least(threshold, begin, end, row[j] + x_low + below[j])
                if k < end and threshold[k] <= row[j] + x_high + band[j]:
                    square = pair_square(x, position, y, column0 + j)
                    k = _first_at_least(threshold, k, end, square)
                if k < end:
                    hist[k] += 1
                    fresh[q] += 1
        certainly[i] = nearer
    _finish(certainly, row0 - strip0, strip)


@unfused
def scan_columns(
    tile: Array,
    row0: int,
    column0: int,
    x: RankedPoints,
    strip: StripArrays,
    pairs: Array,
    grouped: Array,
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
    band = x.band[column0 : column0 + columns]
    sure = strip.sure[column0 : column0 + columns]
    cap = strip.cap[column0 : column0 + columns]
    nearer = np.zeros(columns, np.int32)
    place = np.zeros(columns + 1, np.int64)
    room = -band - cap
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
            certain = row[j] + g_high + band[j] < sure[j]
            possible = row[j] + g_low - band[j] <= cap[j]
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
            low = tile[i, j] + (x.norms[other] - x.band[other]) - band[j]
            high = tile[i, j] + (x.norms[other] + x.band[other]) + band[j]
            k = _first_at_least(threshold, begin, end, low)
            if k < end and threshold[k] <= high:
                k = _first_at_least(threshold, k, end, pair_square(x, q, x, other))
            if k < end:
                hist[k] += 1
                fresh[q] += 1
        first = place[j]
    _finish(nearer, column0, strip)
