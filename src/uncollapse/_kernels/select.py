"""Values of given ranks, and hashes of rows: twins of parts of `metrics._strip`, `_ranked_set`."""

from __future__ import annotations

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse._kernels.loops import unfused

__all__ = ["row_hashes", "values_at_rank"]


@unfused
def values_at_rank(values: Array, first: Array, last: Array, rank: Array) -> Array:
    """For each row, which value has that 0-based rank, without columns `first[i] : last[i]`."""
    rows, columns = values.shape
    out = np.empty(rows, values.dtype)
    lowest = np.empty(columns, values.dtype)
    for i in range(rows):
        kept = rank[i] + 1
        lowest[:kept] = np.inf
        for j in range(columns):
            value = values[i, j]
            if value < lowest[kept - 1] and not first[i] <= j < last[i]:
                place = kept - 1
                while place > 0 and lowest[place - 1] > value:
                    lowest[place] = lowest[place - 1]
                    place -= 1
                lowest[place] = value
        out[i] = lowest[kept - 1]
    return out


@unfused
def row_hashes(bits: Array, key: Array, out: Array) -> None:
    """A number for each row of `bits`, which are those of its values; `key` is `[2, d]`."""
    for i in range(len(bits)):
        total = np.int64(0)
        for k in range(bits.shape[1]):
            mixed = (np.int64(bits[i, k]) + key[0, k]) * key[1, k]
            total += (mixed ^ (mixed >> 31)) * key[0, k]
        out[i] = total
