"""What one query adds to each mean: formulas on the 0-based ranks of its relevant items.

Queries come in blocks: the ranks of query i are `ranks[start[i] : start[i + 1]]`, ascending.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse.metrics._strip import BEYOND

__all__ = ["Terms", "means"]


class Terms:
    """The terms by name, NaN for a query with nothing relevant; filled block by block."""

    def __init__(self, queries: int, names: list[str]) -> None:
        self.values = {name: np.full(queries, np.nan) for name in names}

    def add_retrieval(
        self, rows: Array, start: Array, ranks: Array, ks: tuple[int, ...], size: int
    ) -> None:
        """Fill in recall, precision, R-precision, MAP@R, MRR (and mAP if it has a name)."""
        rows, counts, first = _with_match(rows, start)
        if not len(rows):
            return
        nearest = ranks[first]
        for k in ks:
            self.values[f"recall@{k}"][rows] = nearest < k
            # Ranks ascend, so the first k positives are enough.
            head = first[:, None] + np.minimum(np.arange(min(k, counts.max())), counts[:, None] - 1)
            fits = np.arange(head.shape[1]) < counts[:, None]
            found = ((ranks[head] < k) & fits).sum(1)
            self.values[f"precision@{k}"][rows] = found / min(k, size)
        hit = ranks < np.repeat(counts, counts)
        self.values["r_precision"][rows] = np.add.reduceat(hit, first, dtype=np.int64) / counts
        # Precision of the list cut just after each relevant item.
        precision = (_places(ranks, first, counts) + 1) / (ranks + 1.0)
        if "mAP" in self.values:
            self.values["mAP"][rows] = np.add.reduceat(precision, first) / counts
        precision *= hit
        self.values["map@r"][rows] = np.add.reduceat(precision, first) / counts
        self.values["mrr"][rows] = np.where(nearest == BEYOND, 0.0, 1 / (nearest + 1.0))

    def add_reid(
        self, rows: Array, start: Array, ranks: Array, ks: tuple[int, ...], average: str
    ) -> None:
        """Fill in mAP, CMC and mINP."""
        rows, counts, first = _with_match(rows, start)
        if not len(rows):
            return
        place = _places(ranks, first, counts)
        precision = (place + 1) / (ranks + 1.0)
        if average == "trapezoid":
            # Precision just before the match: 1 at the top of the list.
            before = np.where(ranks > 0, place / np.maximum(ranks, 1), 1.0)
            precision = (precision + before) / 2
        self.values["mAP"][rows] = np.add.reduceat(precision, first) / counts
        for k in ks:
            self.values[f"cmc@{k}"][rows] = ranks[first] < k
        self.values["mINP"][rows] = counts / (ranks[first + counts - 1] + 1.0)


def means(terms: Mapping[str, Array], kept: Array) -> dict[str, float]:
    """Mean of each term over the queries `kept`, NaN over none."""
    return {
        name: float(values[kept].mean()) if kept.any() else float("nan")
        for name, values in terms.items()
    }


def _with_match(rows: Array, start: Array) -> tuple[Array, Array, Array]:
    """Those of the queries that have a relevant item, how many they have, where theirs begin."""
    counts = np.diff(start)
    some = counts > 0
    return rows[some], counts[some], start[:-1][some]


def _places(ranks: Array, first: Array, counts: Array) -> Array:
    """The i of each rank r_i."""
    place = np.arange(0.0, len(ranks))
    place -= np.repeat(first, counts)
    return place
