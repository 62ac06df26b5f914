"""Retrieval and clustering of an embedding: EPS §5."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse.health import Health
from uncollapse.metrics import clustering, modes_per_class, retrieval

__all__ = ["MULTIPLIER", "Scores", "score", "with_modes"]


MULTIPLIER = 10  # clusters a class for NMI+, as in EPS table 2


_COUNTED = 20  # classes whose modes are counted without fine labels, which takes a while


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


def with_modes(
    health: Health, embeddings: Array, labels: Array, fine_labels: Array | None, *, seed: int = 0
) -> Health:
    """The same health with the modes each class keeps (`metrics.modes_per_class`).

    Counted by the fine labels if there are any; without, only for up to twenty classes.

    >>> from uncollapse.health import measure
    >>> z = np.array([[0.0], [0.1], [4.0], [4.1], [9.0], [9.1]])
    >>> labels, fine = np.array([0, 0, 0, 0, 1, 1]), np.array([0, 0, 1, 1, 2, 2])
    >>> with_modes(measure(z, labels), z, labels, fine).modes_per_class
    {0: 2, 1: 1}
    """
    if not math.isfinite(health.diameter) or not health.classes:
        return health
    if fine_labels is None and len(health.classes) > _COUNTED:
        return health
    found = modes_per_class(embeddings, labels, fine_labels, seed=seed)
    counts = dict(zip(found.classes.tolist(), found.modes.tolist(), strict=True))
    known = {label: int(count) for label, count in counts.items() if not math.isnan(count)}
    classes = tuple(replace(one, modes=known.get(one.label)) for one in health.classes)
    return replace(health, classes=classes)
