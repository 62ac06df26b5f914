"""Scan of a tile of squared distances in torch alone: how many negatives precede each positive.

The same steps as `_numba`, on any device; both are exact, so they agree.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from uncollapse.metrics._frame import Side
from uncollapse.metrics._strip import Strip, first_at_least

__all__ = ["own_squares", "scan"]

_OWN_ELEMENTS = 1 << 20  # distances to positives held at a time


def own_squares(
    x: Side, y: Side, low: int, high: int, own_low: Tensor, own_high: Tensor,
    x_skip: Tensor, y_skip: Tensor, start: Tensor, out: Tensor,
) -> None:  # fmt: skip
    """Sorted exact squared distances from each query of [low, high) to its positives."""
    # A query whose class is not in the gallery has an empty range where the next class begins.
    new = (own_low[low:high].diff() != 0) | (own_high[low:high].diff() != 0)
    bounds = torch.nonzero(new).flatten() + 1
    groups = [low, *(low + bounds).tolist(), high]
    for a, b in pairwise(groups):
        first, last = int(own_low[a]), int(own_high[a])
        if first == last:
            continue
        step = max(1, _OWN_ELEMENTS // (last - first))
        own = y.exact(slice(first, last))
        for c in range(a, b, step):
            e = min(c + step, b)
            # Direct differences: the distance of equal rows is exactly 0.
            square = torch.cdist(
                x.exact(slice(c, e)), own, compute_mode="donot_use_mm_for_euclid_dist"
            ).square_()
            square[x_skip[c:e, None] == y_skip[first:last]] = torch.inf
            values = square.sort(1).values
            out[int(start[c - low]) : int(start[e - low])] = values[torch.isfinite(values)]


def scan(tile: Tensor, x: Side, row0: int, y: Side, column0: int, strip: Strip, q0: int) -> None:
    """The tile's rows are queries q0.. of the strip; `tile` is |y|² - 2 x·y + |x|², own inf."""
    rows, columns = tile.shape
    q = slice(q0, q0 + rows)
    margin = x.band[row0 : row0 + rows, None] + y.band[column0 : column0 + columns]
    nearer = tile + margin < strip.sure[q, None]
    open_pairs = (tile - margin <= strip.cap[q, None]).logical_and_(nearer.logical_not())
    certain = nearer.sum(1, dtype=torch.int32)
    live = strip.live[q] >= 0
    strip.hist.index_add_(0, strip.start[:-1][q][live], certain[live])
    strip.fresh[q] += certain

    i, j = open_pairs.nonzero(as_tuple=True)
    if len(i):
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
        square[apart] = x.squares(a[apart], y, b[apart])
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
