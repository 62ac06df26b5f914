"""Scan of a tile of squared distances: how many negatives precede each positive.

In torch, on any device. `_compiled_scan` is the same by compiled kernels; both are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from uncollapse.distances import Frame
from uncollapse.distances.tiles import exact_squares, short_squares
from uncollapse.metrics._ranked_set import RankedSet
from uncollapse.metrics._strip import Strip, first_at_least
from uncollapse.metrics._task import Task

__all__ = ["TILE", "Counter", "TorchScan"]

TILE = 640  # rows and columns: one float32 tile stays near the cores
# Compares the rows, the first of which is query a, with these columns of the gallery and counts for
# the rows; if told to, for the columns as queries too.
Counter = Callable[[Frame, int, slice, bool], None]

_OWN_ELEMENTS = 1 << 20  # distances to positives held at a time


class TorchScan:
    """Distances to positives, and scans of tiles, for one task."""

    shared = False  # whether threads should take turns: torch has its own for each tile

    def __init__(self, task: Task, x: RankedSet, y: RankedSet) -> None:
        self._x, self._y = x, y
        self._low, self._high, self._x_skip, self._y_skip = (
            torch.from_numpy(array).to(x.twin.device)
            for array in (task.own_low, task.own_high, task.query_skip, task.gallery_skip)
        )

    def own(self, low: int, high: int, start: Tensor, out: Tensor) -> None:
        """Exact squared distances from each query of [low, high) to its positives, ascending."""
        # A query whose class is not in the gallery has an empty range where the next class begins.
        new = (self._low[low:high].diff() != 0) | (self._high[low:high].diff() != 0)
        groups = [low, *(torch.nonzero(new).flatten() + low + 1).tolist(), high]
        for a, b in pairwise(groups):
            own = slice(int(self._low[a]), int(self._high[a]))
            if own.start == own.stop:
                continue
            step = max(1, _OWN_ELEMENTS // (own.stop - own.start))
            for c in range(a, b, step):
                e = min(c + step, b)
                square = exact_squares(self._x.frame, slice(c, e), self._y.frame, own)
                square[self._x_skip[c:e, None] == self._y_skip[own]] = torch.inf
                values = square.sort(1).values
                out[int(start[c - low]) : int(start[e - low])] = values[torch.isfinite(values)]

    def counter(self, strip: Strip, low: int) -> Counter:
        """What counts tiles for this strip, whose first query is `low`."""
        buffer = self._x.frame.norms.new_empty(TILE * TILE)

        def count(left: Frame, a: int, columns: slice, both: bool) -> None:
            width = columns.stop - columns.start
            tile = buffer[: len(left) * width].view(len(left), width)
            short_squares(left, slice(None), self._y.frame, columns, out=tile)
            self._scan(tile, a, columns.start, strip, low, both)

        return count

    def _scan(self, tile: Tensor, a: int, c: int, strip: Strip, low: int, both: bool) -> None:
        rows, columns = tile.shape
        tile += self._x.frame.norms[a : a + rows, None]
        own_low, own_high = self._low[a : a + rows], self._high[a : a + rows]
        if int(own_low.min()) < c + columns and int(own_high.max()) > c:
            place = torch.arange(c, c + columns, device=tile.device)
            tile[(place >= own_low[:, None]) & (place < own_high[:, None])] = torch.inf
        _count(tile, self._x, a, self._y, c, strip, a - low)
        if both:
            _count(tile.T, self._x, c, self._x, a, strip, c)


def _count(
    tile: Tensor, x: RankedSet, row0: int, y: RankedSet, column0: int, strip: Strip, q0: int
) -> None:
    """The tile's rows are queries q0... of the strip; their own classes are at infinity."""
    rows, columns = tile.shape
    q = slice(q0, q0 + rows)
    bands = x.frame.band[row0 : row0 + rows, None], y.frame.band[column0 : column0 + columns]
    margin = bands[0] + bands[1]
    nearer = tile + margin < strip.sure[q, None]
    open_pairs = (tile - margin <= strip.cap[q, None]).logical_and_(nearer.logical_not())
    certain = nearer.sum(1, dtype=torch.int32)
    live = strip.live[q] >= 0
    strip.hist.index_add_(0, strip.start[:-1][q][live], certain[live])
    strip.fresh[q] += certain

    i, j = open_pairs.nonzero(as_tuple=True)
    if len(i):
        # Count each such negative at the first positive it precedes.
        value, around = tile[i, j], margin[i, j]
        begin = strip.start[:-1][q][i]
        end = begin + strip.live[q][i] + 1
        place = first_at_least(strip.threshold, begin, end, (value - around).double())
        inside = place < end
        at = strip.threshold[place.clamp(max=len(strip.threshold) - 1)]
        unsure = inside & (at <= (value + around).double())
        pick = unsure.nonzero().flatten()
        a, b = row0 + i[pick], column0 + j[pick]
        square = torch.zeros(len(pick), dtype=torch.float64, device=tile.device)
        apart = (x.twin[a] != y.twin[b]).nonzero().flatten()
        square[apart] = x.frame.squares(a[apart], b[apart], y.frame)
        place[pick] = first_at_least(strip.threshold, place[pick], end[pick], square)
        inside = place < end
        one = torch.ones(1, dtype=torch.int32, device=tile.device)
        strip.hist.index_add_(0, place[inside], one.expand(int(inside.sum())))
        strip.fresh[q] += torch.bincount(i[inside], minlength=rows).int()
    _retire(strip, q0, rows)


def _retire(strip: Strip, q0: int, rows: int) -> None:
    """Drop positives whose rank passed the limit."""
    q = slice(q0, q0 + rows)
    due = ((strip.live[q] > 0) & (strip.fresh[q] > strip.live[q])).nonzero().flatten() + q0
    if not len(due):
        return
    strip.fresh[due] = 0
    first, count = strip.start[due], strip.live[due].long() + 1
    k = torch.arange(int(count.max()), device=first.device)
    entry = (first[:, None] + k).clamp(max=len(strip.hist) - 1)
    rank = strip.hist[entry].cumsum(1) + k
    passed = (rank >= strip.limit[due, None]) & (k < count[:, None])
    any_passed = passed.any(1)
    last = torch.where(any_passed, (passed.int().argmax(1) - 1).clamp(min=0), count - 1)
    strip.live[due] = last.to(strip.live.dtype)
    strip.cap[due] = (strip.threshold[first + last] * 1.000001).to(strip.cap.dtype)
