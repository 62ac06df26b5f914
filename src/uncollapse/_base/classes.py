"""Class layout of a labelled batch: who shares a class with whom, without an N × N mask."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, class_ids

__all__ = ["ClassLayout"]


@dataclass(frozen=True)
class ClassLayout:
    """Rows grouped by class, in O(N log N).

    `ids[i]` is the class number of row i; `order` lists the rows class by class (rows ascending
    inside a class); class c is `order[starts[c] : starts[c] + counts[c]]`.

    >>> layout = ClassLayout.of([7, 5, 7, 7], 4)
    >>> layout.ids.tolist(), layout.order.tolist(), layout.counts.tolist()
    ([1, 0, 1, 1], [1, 0, 2, 3], [1, 3])
    >>> layout.positives.tolist()
    [[2, 3], [1, 1], [0, 3], [0, 2]]
    """

    ids: Array
    classes: Array
    order: Array
    starts: Array
    counts: Array

    @classmethod
    def of(
        cls, labels: ArrayLike, n: int | None, name: str = "labels", *, min_classes: int = 1
    ) -> ClassLayout:
        """Group `n` rows (any number, if None) by their labels."""
        ids, classes = class_ids(labels, n, name, min_classes=min_classes)
        counts = np.bincount(ids, minlength=len(classes))
        starts = np.cumsum(counts) - counts
        return cls(ids, classes, np.argsort(ids, kind="stable"), starts, counts)

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.ids)

    def members(self, c: int) -> Array:
        """Rows of class c, ascending."""
        return self.order[self.starts[c] : self.starts[c] + self.counts[c]]

    @cached_property
    def row_counts(self) -> Array:
        """Size of each row's own class."""
        return self.counts[self.ids]

    @cached_property
    def usable(self) -> Array:
        """Rows that have both a positive and a negative: the possible anchors."""
        return (self.row_counts > 1) & (self.row_counts < self.size)

    @cached_property
    def _table(self) -> tuple[Array, Array]:
        """Positives of each row, ascending, then the row itself as padding; and which are real."""
        width = max(int(self.counts.max()) - 1, 1)
        column = np.arange(width)
        rank = np.empty(self.size, np.int64)  # place of each row inside its class
        rank[self.order] = np.arange(self.size) - self.starts[self.ids[self.order]]
        skip_self = column + (column >= rank[:, None])
        place = np.minimum(self.starts[self.ids][:, None] + skip_self, self.size - 1)
        real = column < (self.row_counts - 1)[:, None]
        return np.where(real, self.order[place], np.arange(self.size)[:, None]), real

    @property
    def positives(self) -> Tensor:
        """`[N, Kmax - 1]` (at least one column) rows of the same class, padded with the row."""
        return torch.from_numpy(self._table[0])

    @property
    def is_positive(self) -> Tensor:
        """Which entries of `positives` are real."""
        return torch.from_numpy(self._table[1])
