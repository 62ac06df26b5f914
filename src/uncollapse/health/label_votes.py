"""How often nearest neighbours share a label, and how often they would if labels were shuffled."""

from __future__ import annotations

import math

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse.health.records import NearestLabels

__all__ = ["nearest_labels"]

_TIE = 1e-9  # relative difference of distances that counts as none


def nearest_labels(distance: Array, ids: Array) -> NearestLabels | None:
    """Share of rows whose nearest neighbour has their label; None where nothing can be shared.

    `distance` is square, `ids` are class numbers. Neighbours that tie share the vote. Rows that are
    alone in their class do not count, but may be neighbours.

    `deviation` is exact for shuffled labels: two rows that are nearest to each other, hubs and
    duplicates, which make the votes dependent, all count (the join-count statistic of Cliff & Ord
    1981, for several classes).

    >>> x = np.array([0.0, 1.0, 5.0, 6.5])
    >>> nearest_labels(np.abs(x[:, None] - x), np.array([0, 0, 1, 1])).share
    1.0
    """
    n, counts = len(ids), np.bincount(ids).astype(np.float64)
    rows = int(counts[counts > 1].sum())
    if rows == 0 or counts.max() == n:
        return None
    votes = _votes(distance)
    joined = votes + votes.T
    share = float(votes[ids[:, None] == ids].sum())
    same = [float(_chosen(counts, k).sum()) / _falling(n, k) for k in (2, 3, 4)]
    pairs, triples = same[0], same[1]
    # Two pairs without a row in common: both of one class, or of two.
    two = _chosen(counts, 2)
    apart = same[2] + float(two.sum() ** 2 - (two**2).sum()) / _falling(n, 4)
    alike = float((joined**2).sum()) / 2
    meeting = float((joined.sum(axis=1) ** 2).sum()) - 2 * alike
    second = alike * pairs + meeting * triples + (n**2 - alike - meeting) * apart
    variance = max(0.0, second - (n * pairs) ** 2)
    return NearestLabels(share / rows, n * pairs / rows, math.sqrt(variance) / rows, rows)


def _votes(distance: Array) -> Array:
    """For each row, one vote, divided over its nearest neighbours."""
    others = np.where(np.eye(len(distance), dtype=bool), np.inf, distance)
    nearest = others <= others.min(axis=1, keepdims=True) * (1 + _TIE)
    votes: Array = nearest / nearest.sum(axis=1, keepdims=True)
    return votes


def _chosen(counts: Array, k: int) -> Array:
    """Ways to take k different members of each class, in order."""
    ways: Array = np.prod([np.maximum(counts - i, 0.0) for i in range(k)], axis=0)
    return ways


def _falling(n: int, k: int) -> float:
    return float(max(math.prod(range(n - k + 1, n + 1)), 1))
