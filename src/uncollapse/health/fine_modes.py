"""The modes that classes keep, counted by hidden finer labels where there are any: EPS §5.1."""

from __future__ import annotations

import math
from dataclasses import replace

from uncollapse._base.arrays import Array
from uncollapse.health.records import Health
from uncollapse.metrics import modes_per_class

__all__ = ["COUNTED", "with_modes"]

COUNTED = 20  # classes whose modes are counted without fine labels, which takes a while


def with_modes(
    health: Health, embeddings: Array, labels: Array, fine_labels: Array | None, *, seed: int = 0
) -> Health:
    """The same health with the modes each class keeps (`metrics.modes_per_class`).

    Counted by the fine labels if there are any; without, only for up to twenty classes.

    >>> import numpy as np
    >>> from uncollapse.health import measure
    >>> z = np.array([[0.0], [0.1], [4.0], [4.1], [9.0], [9.1]])
    >>> labels, fine = np.array([0, 0, 0, 0, 1, 1]), np.array([0, 0, 1, 1, 2, 2])
    >>> with_modes(measure(z, labels), z, labels, fine).modes_per_class
    {0: 2, 1: 1}
    """
    if not math.isfinite(health.diameter) or not health.classes:
        return health
    if fine_labels is None and len(health.classes) > COUNTED:
        return health
    found = modes_per_class(embeddings, labels, fine_labels, seed=seed)
    counts = dict(zip(found.classes.tolist(), found.modes.tolist(), strict=True))
    known = {label: int(count) for label, count in counts.items() if not math.isnan(count)}
    classes = tuple(replace(one, modes=known.get(one.label)) for one in health.classes)
    return replace(health, classes=classes)
