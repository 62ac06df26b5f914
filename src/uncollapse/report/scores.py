"""Retrieval and clustering of an embedding: EPS §5."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse.metrics import clustering, retrieval

__all__ = ["MULTIPLIER", "Scores", "score"]


MULTIPLIER = 10  # clusters a class for NMI+, as in EPS table 2


@dataclass(frozen=True)
class Scores:
    """How well neighbours and clusters agree with one kind of labels; values by name."""

    kind: str
    values: Mapping[str, float]


def score(embeddings: Array, labels: Array, kind: str, *, seed: int = 0) -> Scores:
    """R@1, 2, 4, 8, MAP@R, NMI, and NMI+ with ten clusters a class where the rows allow it.

    >>> rows = np.array([[0.0], [0.1], [9.0], [9.2]])
    >>> score(rows, np.array([0, 0, 1, 1]), "label").values["R@1"]
    1.0
    """
    found = retrieval(embeddings, labels, ks=(1, 2, 4, 8), progress=False)
    values = {f"R@{k}": v for k, v in found.recall.items()} | {"MAP@R": found.map_at_r}
    classes = len(np.unique(labels))
    for name, times in (("NMI", 1), ("NMI+", MULTIPLIER)):
        if 1 < classes * times <= len(embeddings) // 2:
            result = clustering(embeddings, labels, multiplier=times, seed=seed)
            values[name] = float(result.nmi)
    return Scores(kind, values)
