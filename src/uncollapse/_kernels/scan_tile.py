"""Scan of a tile of products: twin of `TorchScan.scan` in `metrics`.

Once some neighbours are known hardly anything in a tile is near enough to matter. A first look goes
over the tile once for the queries of its rows and of its columns, part by part, and only parts with
something near are looked at again for either.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse._kernels.class_squares import RankedPoints, pair_square
from uncollapse._kernels.loops import unfused

__all__ = ["StripArrays", "count_tile"]

_FEW, _LINEAR = 4, 160
_PART = 128  # columns looked at together


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
def _first_look(
    tile: Array, low: Array, row_most: Array, room: Array, column_most: Array, near: Array
) -> None:
    """Mark the parts of rows with an entry at or below its row's or its column's bound.

    These are `row_most[i] - low[j]` and `column_most[i] - room[j]`.
    """
    rows, columns = tile.shape
    for i in range(rows):
        most, other = row_most[i], column_most[i]
        for p in range(near.shape[1]):
            here = slice(p * _PART, min(p * _PART + _PART, columns))
            part, lower, room_there = tile[i, here], low[here], room[here]
            count = np.int32(0)
            for j in range(len(part)):
                of_row, of_column = most - lower[j], other - room_there[j]
                count += np.int32(part[j] <= (of_row if of_row > of_column else of_column))
            near[i, p] = count > 0


@unfused
def _look_at_row(
    part: Array, low: Array, high: Array, sure: float, cap: float, flag: Array
) -> tuple[np.int32, np.int32]:
    """How many are certainly nearer than every positive, and may be nearer than one: flagged."""
    nearer, maybe = np.int32(0), np.int32(0)
    for j in range(len(part)):
        certain, possible = part[j] + high[j] < sure, part[j] + low[j] <= cap
        nearer += np.int32(certain)
        maybe += np.int32(possible)
        flag[j] = np.uint8(possible) ^ np.uint8(certain)
    return nearer, maybe - nearer


@unfused
def _look_at_columns(
    part: Array, low: Array, high: Array, g_low: float, g_high: float, flag: Array, nearer: Array
) -> np.int32:
    """The same with the columns as queries: `low` and `high` are short of `cap` and `sure`."""
    maybe = np.int32(0)
    for j in range(len(part)):
        certain, possible = part[j] + high[j] < -g_high, part[j] + low[j] <= -g_low
        nearer[j] += np.int32(certain)
        maybe += np.int32(possible) - np.int32(certain)
        flag[j] = np.uint8(possible) ^ np.uint8(certain)
    return maybe


@unfused
def _flagged(flag: Array, word: Array, columns: int, expected: np.int32, out: Array) -> None:
    """List the columns whose flag is set."""
    count = 0
    if expected < _FEW:
        for w in range((columns + 7) // 8):
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
def _count_row(
    row: Array, start: int, listed: Array, low: Array, high: Array, x_low: float, x_high: float,
    x: RankedPoints, position: int, y: RankedPoints, column0: int, q: int, strip: StripArrays,
) -> None:  # fmt: skip
    """Count each listed negative at the first positive it precedes."""
    threshold = strip.threshold
    begin, end = strip.start[q], strip.start[q] + strip.live[q] + 1
    for n in range(len(listed)):
        j = start + listed[n]
        k = _first_at_least(threshold, begin, end, row[j] + low[j] + x_low)
        if k < end and threshold[k] <= row[j] + high[j] + x_high:
            k = _first_at_least(threshold, k, end, pair_square(x, position, y, column0 + j))
        if k < end:
            strip.hist[k] += 1
            strip.fresh[q] += 1


@unfused
def _count_columns(
    tile: Array, row0: int, column0: int, x: RankedPoints, low: Array, high: Array,
    strip: StripArrays, pairs: Array, grouped: Array,
) -> None:  # fmt: skip
    """The same with the columns as queries, one by one: a query's thresholds are fetched once."""
    columns, threshold = tile.shape[1], strip.threshold
    place = np.zeros(columns + 1, np.int64)
    for n in range(len(pairs)):
        place[(pairs[n] & 0xFFFF) + 1] += 1
    for j in range(columns):
        place[j + 1] += place[j]
    for n in range(len(pairs)):
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
            k = _first_at_least(
                threshold, begin, end, tile[i, j] + low[j] + (x.norms[other] - x.band[other])
            )
            if k < end and threshold[k] <= tile[i, j] + high[j] + (x.norms[other] + x.band[other]):
                k = _first_at_least(threshold, k, end, pair_square(x, q, x, other))
            if k < end:
                strip.hist[k] += 1
                strip.fresh[q] += 1
        first = place[j]


@unfused
def count_tile(
    tile: Array, row0: int, column0: int, x: RankedPoints, y: RankedPoints,
    own_low: Array, own_high: Array, strip0: int, strip: StripArrays,
    both: bool, pairs: Array, grouped: Array,
) -> None:  # fmt: skip
    """The tile's rows are queries, with `both` its columns too; `tile[i, j]` is -2 x·y.

    `both`: one set, all of it in one strip. Own classes are made infinite. `pairs` and `grouped`
    have room for the tile's entries.
    """
    rows, columns = tile.shape
    flag = np.zeros((_PART + 7) // 8 * 8, np.uint8)
    word = flag.view(np.uint64)  # eight flags at a time: few are set
    listed = np.empty(_PART + 1, np.int64)
    here, there = slice(row0, row0 + rows), slice(column0, column0 + columns)
    x_low, x_high = x.norms[here] - x.band[here], x.norms[here] + x.band[here]
    low, high = y.norms[there] - y.band[there], y.norms[there] + y.band[there]
    sure = strip.sure[row0 - strip0 : row0 - strip0 + rows] - x_high
    cap = strip.cap[row0 - strip0 : row0 - strip0 + rows] - x_low
    room, excess, column_cap = low, high, np.full_like(x_low, -np.inf)
    if both:
        room, excess, column_cap = low - strip.cap[there], high - strip.sure[there], -x_low
    certainly, certainly_columns = np.zeros(rows, np.int32), np.zeros(columns, np.int32)
    for i in range(rows):
        first = max(own_low[row0 + i] - column0, 0)
        for j in range(first, min(own_high[row0 + i] - column0, columns)):
            tile[i, j] = np.inf
    near = np.empty((rows, (columns + _PART - 1) // _PART), np.bool_)
    _first_look(tile, low, cap, room, column_cap, near)
    total = 0
    for i in range(rows):
        for p in range(near.shape[1]):
            if not near[i, p]:
                continue
            start, stop = p * _PART, min(p * _PART + _PART, columns)
            part = tile[i, start:stop]
            nearer, maybe = _look_at_row(
                part, low[start:stop], high[start:stop], sure[i], cap[i], flag
            )
            certainly[i] += nearer
            if maybe > 0:
                _flagged(flag, word, stop - start, maybe, listed)
                _count_row(
                    tile[i], start, listed[:maybe], low, high, x_low[i], x_high[i],
                    x, row0 + i, y, column0, row0 + i - strip0, strip,
                )  # fmt: skip
            if both:
                maybe = _look_at_columns(
                    part, room[start:stop], excess[start:stop], x_low[i], x_high[i], flag,
                    certainly_columns[start:stop],
                )  # fmt: skip
                if maybe > 0:
                    _flagged(flag, word, stop - start, maybe, listed)
                    for n in range(maybe):
                        pairs[total] = (i << 16) + start + listed[n]
                        total += 1
    _finish(certainly, row0 - strip0, strip)
    if both:
        _count_columns(tile, row0, column0, x, low, high, strip, pairs[:total], grouped)
        _finish(certainly_columns, column0, strip)
