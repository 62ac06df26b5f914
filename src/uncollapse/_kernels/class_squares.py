"""Exact squared distances of queries to their positives: twin of `TorchScan.own` in `metrics`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse._kernels.loops import unfused

__all__ = ["SORTED_BELOW", "RankedPoints", "own_squares", "pair_square"]

SORTED_BELOW = 32  # longer lists are sorted faster by NumPy


class RankedPoints(NamedTuple):
    """Arrays of a `RankedSet`: position i is row `order[i]` of `rows`, times its `factor`."""

    rows: Array
    order: Array
    factor: Array
    norms: Array
    band: Array
    twin: Array


@unfused
def pair_square(x: RankedPoints, i: int, y: RankedPoints, j: int) -> float:
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

    `low` is the query of `start[0]`. `mutual`: one set, and whole classes of it, so that each pair
    serves both.
    """
    for q in range(first, last):
        if mutual:
            for g in range(q + 1, own_high[q]):
                square = pair_square(x, q, y, g)
                out[start[q] + g - 1 - own_low[q]] = square
                out[start[g] + q - own_low[q]] = square
        else:
            place = start[q - low]
            for g in range(own_low[q], own_high[q]):
                if x_skip[q] != y_skip[g]:
                    out[place] = pair_square(x, q, y, g)
                    place += 1
        if start[q - low + 1] - start[q - low] < SORTED_BELOW:
            out[start[q - low] : start[q - low + 1]].sort()
