"""Slow float64 references written from the definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Array = np.ndarray[Any, Any]
Oracle = Callable[..., dict[str, float]]


def _retrieval(
    x: Array,
    labels: Array,
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    ks: tuple[int, ...] = (1, 2, 4, 8),
    ties: str = "pessimistic",
) -> dict[str, float]:
    """Every metric of `retrieval` by loops over all pairs."""
    x = np.asarray(x, np.float64)
    same = gallery is None
    y = x if gallery is None else np.asarray(gallery, np.float64)
    y_labels = np.asarray(labels if gallery_labels is None else gallery_labels)
    terms: dict[str, list[float]] = {}
    for i, label in enumerate(labels):
        square = ((x[i] - y) ** 2).sum(1)
        other = np.arange(len(y)) != i if same else np.ones(len(y), bool)
        positives = np.sort(square[other & (y_labels == label)])
        negatives = square[other & (y_labels != label)]
        if not len(positives):
            continue
        ranks = []
        for place, p in enumerate(positives):
            tied = np.abs(negatives - p) <= 1e-12 * p
            nearer = (negatives < p) & ~tied
            before = nearer.sum() + (tied.sum() if ties == "pessimistic" else 0)
            ranks.append(place + int(before))
        r = len(ranks)
        size = int(other.sum())
        for k in ks:
            terms.setdefault(f"recall@{k}", []).append(float(ranks[0] < k))
            found = sum(rank < k for rank in ranks)
            terms.setdefault(f"precision@{k}", []).append(found / min(k, size))
        hits = [(j + 1) / (rank + 1) for j, rank in enumerate(ranks) if rank < r]
        terms.setdefault("r_precision", []).append(len(hits) / r)
        terms.setdefault("map@r", []).append(sum(hits) / r)
        precision = [(j + 1) / (rank + 1) for j, rank in enumerate(ranks)]
        terms.setdefault("mAP", []).append(sum(precision) / r)
        terms.setdefault("mrr", []).append(1 / (ranks[0] + 1))
    return {name: float(np.mean(values)) for name, values in terms.items()}


@pytest.fixture(scope="session")
def retrieval_oracle() -> Oracle:
    return _retrieval
