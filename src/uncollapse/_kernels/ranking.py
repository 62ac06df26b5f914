"""Ranks of positives, counted tile by tile: twins of `TorchScan` in `metrics.ranking`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse._kernels.triplets import unfused

SORTED_BELOW = 32  # longer lists are sorted faster by NumPy
_FEW, _LINEAR = 4, 160
_PART = 128  # columns looked at together


class RankedPoints(NamedTuple):
    """Arrays of a `RankedSet`: position i is row `order[i]` of `rows`, times its `factor`."""

    rows: Array
    order: Array
    factor: Array
    norms: Array
    band: Array
    twin: Array


@unfused
def _pair_square(x: RankedPoints, i: int, y: RankedPoints, j: int) -> float:
    """Exact squared distance of two positions."""
    if x.twin[i] == y.twin[j]:
        return 0.0
    a, b = x.order[i], y.order[j]
    total = 0.0
    for k in range(x.rows.shape[1]):
        gap = np.float64(x.rows[a, k]) * x.factor[a] - np.float64(y.rows[b, k]) * y.factor[b]
        total += gap * gap
    return total


@unfused
def own_squares(
    x: RankedPoints, y: RankedPoints, first: int, last: int, low: int, own_low: Array,
    own_high: Array, x_skip: Array, y_skip: Array, mutual: bool, start: Array, out: Array,
) -> None:  # fmt: skip
    """Exact squared distances of the queries [first, last) to their positives, short lists sorted.

    Twin of `TorchScan.own_squares`. `low` is the query of `start[0]`. `mutual`: one set, and whole
    classes of it, so that each pair serves both.
    """
    for q in range(first, last):
        if mutual:
            for g in range(q + 1, own_high[q]):
                square = _pair_square(x, q, y, g)
                out[start[q] + g - 1 - own_low[q]] = square
                out[start[g] + q - own_low[q]] = square
        else:
            entry = start[q - low]
            for g in range(own_low[q], own_high[q]):
                if x_skip[q] != y_skip[g]:
                    out[entry] = _pair_square(x, q, y, g)
                    entry += 1
        if start[q - low + 1] - start[q - low] < SORTED_BELOW:
            out[start[q - low] : start[q - low + 1]].sort()


class CountArrays(NamedTuple):
    """Arrays of a `RankCounts`: what is known so far about its queries."""

    sure: Array
    cap: Array
    live: Array
    start: Array
    threshold: Array
    hist: Array
    fresh: Array
    limit: Array


class Bounds(NamedTuple):
    """Entry (i, j) of a tile may matter to a query if `tile[i, j] + low[j] <= cap[i]`.

    It is certainly nearer than all positives if `tile[i, j] + high[j] < sure[i]`.
    """

    low: Array
    high: Array
    sure: Array
    cap: Array


class Listed(NamedTuple):
    """For the queries of rows and of columns: how many are nearer for certain, and the doubtful."""

    row_nearer: Array
    column_nearer: Array
    row_pairs: Array
    column_pairs: Array


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
    tile: Array, row_low: Array, row_cap: Array, column_low: Array, column_cap: Array, near: Array
) -> None:
    """Mark the parts of rows where an entry may matter to its row's or to its column's query."""
    rows, columns = tile.shape
    for i in range(rows):
        of_row, of_column = row_cap[i], column_cap[i]
        for p in range(near.shape[1]):
            here = slice(p * _PART, min(p * _PART + _PART, columns))
            part, low, other = tile[i, here], row_low[here], column_low[here]
            count = np.int32(0)
            for j in range(len(part)):
                a, b = of_row - low[j], of_column - other[j]
                count += np.int32(part[j] <= (a if a > b else b))
            near[i, p] = count > 0


@unfused
def _flagged(
    flag: Array, word: Array, width: int, expected: np.int32, code: int, out: Array, total: int
) -> int:
    """Add `code + j` to the list for each flag j that is set; returns how many it has then."""
    if expected < _FEW:
        for w in range((width + 7) // 8):
            if word[w] != 0:
                for j in range(8 * w, min(8 * w + 8, width)):
                    if flag[j] != 0:
                        out[total] = code + j
                        total += 1
    else:  # without branches, which would be mispredicted
        for j in range(width):
            out[total] = code + j
            total += flag[j]
    return total


@unfused
def _second_look(
    tile: Array, near: Array, both: bool, row: Bounds, column: Bounds, listed: Listed,
) -> tuple[int, int]:  # fmt: skip
    """Where something is near: count what precedes every positive for certain, list the doubtful.

    Returns how many are listed for queries of rows, and of columns.
    """
    flag = np.zeros((_PART + 7) // 8 * 8, np.uint8)
    word = flag.view(np.uint64)  # eight flags at a time: few are set
    columns, of_rows, of_columns = tile.shape[1], 0, 0
    for i in range(len(near)):
        for p in range(near.shape[1]):
            if not near[i, p]:
                continue
            start, stop = p * _PART, min(p * _PART + _PART, columns)
            # Unsigned, or the loops are not done in SIMD.
            begin, end = np.uint64(start), np.uint64(stop)
            sure, cap = row.sure[i], row.cap[i]
            nearer, maybe = np.int32(0), np.int32(0)
            for j in range(begin, end):
                certain, possible = tile[i, j] + row.high[j] < sure, tile[i, j] + row.low[j] <= cap
                nearer += np.int32(certain)
                maybe += np.int32(possible)
                flag[j - begin] = np.uint8(possible) ^ np.uint8(certain)
            listed.row_nearer[i] += nearer
            if maybe > nearer:
                of_rows = _flagged(
                    flag, word, stop - start, maybe - nearer, (i << 16) + start,
                    listed.row_pairs, of_rows,
                )  # fmt: skip
            if not both:
                continue
            sure, cap = column.sure[i], column.cap[i]
            maybe = np.int32(0)
            for j in range(begin, end):
                certain = tile[i, j] + column.high[j] < sure
                possible = tile[i, j] + column.low[j] <= cap
                listed.column_nearer[j] += np.int32(certain)
                maybe += np.int32(possible) - np.int32(certain)
                flag[j - begin] = np.uint8(possible) ^ np.uint8(certain)
            if maybe > 0:
                of_columns = _flagged(
                    flag, word, stop - start, maybe, (i << 16) + start,
                    listed.column_pairs, of_columns,
                )  # fmt: skip
    return of_rows, of_columns


@unfused
def _finish(nearer: Array, q0: int, counts: CountArrays) -> None:
    """Add what certainly precedes every positive; drop positives whose rank passed the limit."""
    live, start, fresh, hist = counts.live, counts.start, counts.fresh, counts.hist
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
            if k + before >= counts.limit[q]:
                live[q] = max(k - 1, 0)
                counts.cap[q] = counts.threshold[start[q] + live[q]] * 1.000001
                break


@unfused
def _count_rows(
    tile: Array, row0: int, column0: int, x: RankedPoints, y: RankedPoints, bounds: Bounds,
    pairs: Array, query0: int, counts: CountArrays,
) -> None:  # fmt: skip
    """Count each listed negative at the first positive of its row's query that it precedes."""
    threshold = counts.threshold
    for n in range(len(pairs)):
        i, j = pairs[n] >> 16, pairs[n] & 0xFFFF
        position = row0 + i
        q = position - query0
        end = counts.start[q] + counts.live[q] + 1
        low = tile[i, j] + bounds.low[j] + (x.norms[position] - x.band[position])
        k = _first_at_least(threshold, counts.start[q], end, low)
        high = tile[i, j] + bounds.high[j] + (x.norms[position] + x.band[position])
        if k < end and threshold[k] <= high:
            k = _first_at_least(threshold, k, end, _pair_square(x, position, y, column0 + j))
        if k < end:
            counts.hist[k] += 1
            counts.fresh[q] += 1


@unfused
def _count_columns(
    tile: Array, row0: int, column0: int, x: RankedPoints, bounds: Bounds,
    pairs: Array, grouped: Array, counts: CountArrays,
) -> None:  # fmt: skip
    """The same with the columns as queries, one by one: a query's thresholds are fetched once."""
    columns, threshold = tile.shape[1], counts.threshold
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
        begin, end = counts.start[q], counts.start[q] + counts.live[q] + 1
        for n in range(first, place[j]):
            i = grouped[n]
            other = row0 + i
            low = tile[i, j] + bounds.low[j] + (x.norms[other] - x.band[other])
            k = _first_at_least(threshold, begin, end, low)
            high = tile[i, j] + bounds.high[j] + (x.norms[other] + x.band[other])
            if k < end and threshold[k] <= high:
                k = _first_at_least(threshold, k, end, _pair_square(x, q, x, other))
            if k < end:
                counts.hist[k] += 1
                counts.fresh[q] += 1
        first = place[j]


@unfused
def count_tile(
    tile: Array, row0: int, column0: int, x: RankedPoints, y: RankedPoints,
    own_low: Array, own_high: Array, query0: int, counts: CountArrays,
    both: bool, pairs: Array, grouped: Array,
) -> None:  # fmt: skip
    """The tile's rows are queries, with `both` its columns too; `tile[i, j]` is -2 x·y.

    Twin of what `TorchScan.counter` gives. `both`: one set, all of it in one count. Own classes are
    made infinite. `pairs` and `grouped` have room for one more than the tile's entries.
    """
    rows, columns = tile.shape
    here, there = slice(row0, row0 + rows), slice(column0, column0 + columns)
    own_queries = slice(row0 - query0, row0 - query0 + rows)
    x_low, x_high = x.norms[here] - x.band[here], x.norms[here] + x.band[here]
    low, high = y.norms[there] - y.band[there], y.norms[there] + y.band[there]
    row = Bounds(low, high, counts.sure[own_queries] - x_high, counts.cap[own_queries] - x_low)
    column = Bounds(low, high, x_high, np.full_like(x_low, -np.inf))  # nothing is near
    if both:
        column = Bounds(low - counts.cap[there], high - counts.sure[there], -x_high, -x_low)
    for i in range(rows):
        first = max(own_low[row0 + i] - column0, 0)
        for j in range(first, min(own_high[row0 + i] - column0, columns)):
            tile[i, j] = np.inf
    near = np.empty((rows, (columns + _PART - 1) // _PART), np.bool_)
    _first_look(tile, row.low, row.cap, column.low, column.cap, near)
    listed = Listed(np.zeros(rows, np.int32), np.zeros(columns, np.int32), grouped, pairs)
    of_rows, of_columns = _second_look(tile, near, both, row, column, listed)
    _count_rows(tile, row0, column0, x, y, row, grouped[:of_rows], query0, counts)
    _finish(listed.row_nearer, row0 - query0, counts)
    if both:
        _count_columns(tile, row0, column0, x, row, pairs[:of_columns], grouped, counts)
        _finish(listed.column_nearer, column0, counts)
