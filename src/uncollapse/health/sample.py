"""Which rows stand for a large set: every class alike, the same rows for the same seed."""

from __future__ import annotations

import numpy as np

from uncollapse._base.arrays import Array

__all__ = ["balanced_rows"]


def balanced_rows(ids: Array, most: int, rng: np.random.Generator) -> Array:
    """At most `most` rows, ascending, with classes as even as their sizes allow.

    Where there are too many classes for two rows each, whole classes are left out at random.

    >>> ids = np.array([0] * 90 + [1] * 5 + [2] * 5)
    >>> rows = balanced_rows(ids, 12, np.random.default_rng(0))
    >>> np.bincount(ids[rows]).tolist()
    [4, 4, 4]
    """
    if len(ids) <= most:
        return np.arange(len(ids))
    shuffled = rng.permutation(len(ids))
    counts = np.bincount(ids)
    # Classes in random order: the last ones are those left out.
    place = rng.permutation(len(counts))[ids[shuffled]]
    by_class = np.argsort(place, kind="stable")
    starts = np.r_[0, np.cumsum(np.bincount(place))[:-1]]
    rank = np.empty(len(ids), np.int64)
    rank[by_class] = np.arange(len(ids)) - starts[place[by_class]]
    # Pairs first (rank // 2), so that a class that is in at all has two members if it can.
    return np.sort(shuffled[np.lexsort((rank, place, rank // 2))[:most]])
