"""Class means of labelled rows and what is left of each row, in float64 about a common centre."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from uncollapse._base.arrays import Array, ArrayLike, points64
from uncollapse._base.classes import ClassLayout
from uncollapse.distances import binary_scale

__all__ = ["ClassMeans"]


@dataclass(frozen=True)
class ClassMeans:
    """`rows` about their mean over `unit`, a power of two; `means` of the classes in the same.

    Squares of them stay in range, ratios are what they were, and rows that all coincide are
    exactly 0.
    """

    rows: Array
    means: Array
    layout: ClassLayout
    unit: float

    @classmethod
    def of(cls, x: ArrayLike, labels: ArrayLike) -> ClassMeans:
        """The means of rows `[N, dim]` by their labels, in the order of the sorted labels."""
        rows = points64(x)
        unit = binary_scale(float(np.abs(rows).max()))
        rows = rows / unit
        rows = rows - rows[0]
        rows = rows - rows.mean(axis=0)
        layout = ClassLayout.of(labels, len(rows))
        sums = np.add.reduceat(rows[layout.order], layout.starts, axis=0)
        return cls(rows, sums / layout.counts[:, None], layout, unit)

    @property
    def residuals(self) -> Array:
        """Each row minus the mean of its class."""
        left: Array = self.rows - self.means[self.layout.ids]
        return left

    @property
    def centred(self) -> Array:
        """The class means about their own mean: each class weighs alike."""
        about: Array = self.means - self.means.mean(axis=0)
        return about
