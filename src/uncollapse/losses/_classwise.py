"""Pairs inside the classes of a batch: their distances and gradients.

Two tight classes far apart leave no digits of a within-class distance in the batch's own frame.
Differences of float64 rows, or float64 products about each class's own centre, keep them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array
from uncollapse._base.classes import ClassLayout
from uncollapse.distances import pairwise_distances
from uncollapse.losses._engine import compiled

__all__ = ["SortedClasses"]

_SMALL = 32  # classes up to this size by direct differences, larger ones by products
_ELEMENTS = 1 << 18  # differences held at a time: 2 MB in float64, so they stay in cache


@dataclass(frozen=True)
class SortedClasses:
    """The rows of a batch in class order, small classes first.

    Row i's class is the columns `low[i]` to `high[i]`. A table `[N, width]` holds in entry (i, k)
    something about the pair (i, low[i] + k).
    """

    order: Tensor
    low: Tensor
    high: Tensor
    sizes: list[int]

    @classmethod
    def of(cls, layout: ClassLayout, device: torch.device) -> SortedClasses:
        """Put the layout's rows in class order."""
        by_size = np.argsort(layout.counts, kind="stable")
        counts = layout.counts[by_size]
        rank = np.empty_like(by_size)
        rank[by_size] = np.arange(len(by_size))
        order = np.argsort(rank[layout.ids], kind="stable")
        high = np.repeat(np.cumsum(counts), counts)
        low = high - np.repeat(counts, counts)
        at = [torch.from_numpy(x).to(device) for x in (order, low, high)]
        return cls(at[0], at[1], at[2], counts.tolist())

    @cached_property
    def real(self) -> Tensor:
        """`[N, width]`: which entries of a table are pairs of two rows."""
        column = self.low[:, None] + torch.arange(self.width, device=self.low.device)
        row = torch.arange(len(self.low), device=self.low.device)[:, None]
        return (column < self.high[:, None]) & (column != row)

    @property
    def width(self) -> int:
        """Size of the largest class."""
        return self.sizes[-1]

    @property
    def bounds(self) -> tuple[Array, Array]:
        """`low` and `high` as arrays, for the compiled kernels."""
        return self.low.numpy(), self.high.numpy()

    @property
    def triplets(self) -> int:
        """Number of (anchor, positive, negative) triplets of the batch."""
        n = len(self.order)
        return sum(k * (k - 1) * (n - k) for k in self.sizes)

    def columns(self, start: int, stop: int) -> Tensor:
        """`[stop - start, width]` columns of each row's class; past its end, the row itself.

        The width is that of the largest class among these rows.
        """
        width = int(self.high[stop - 1] - self.low[stop - 1])
        column = self.low[start:stop, None] + torch.arange(width, device=self.low.device)
        own = torch.arange(start, stop, device=self.low.device)[:, None]
        return torch.where(column < self.high[start:stop, None], column, own)

    def distances(self, rows: Tensor, dtype: torch.dtype, engine: str = "auto") -> Tensor:
        """Table of the distances inside the classes, -inf where an entry is not real."""
        table = torch.full((len(rows), self.width), -torch.inf, dtype=dtype, device=rows.device)
        kernels = compiled(rows, engine)
        if kernels is not None:
            kernels.class_distances(rows.numpy(), *self.bounds, table.numpy())
            return table
        for start, stop, column in self._small(rows.shape[1]):
            gap = rows[column].sub_(rows[start:stop, None])
            table[start:stop, : column.shape[1]] = torch.linalg.vector_norm(gap, dim=2).to(dtype)
        for low, high in self._large():
            table[low:high, : high - low] = pairwise_distances(rows[low:high]).to(dtype)
        return table.masked_fill_(~self.real, -torch.inf)

    def gradient(
        self, rows: Tensor, weight: Tensor, distance: Tensor, engine: str = "auto"
    ) -> Tensor:
        """Gradient of Σ weight · distance over a table; a pair at distance 0 adds 0."""
        kernels = compiled(rows, engine)
        if kernels is not None:
            result = torch.zeros_like(rows)
            tables = (weight.numpy(), distance.numpy(), result.numpy())
            kernels.class_gradient(rows.numpy(), *self.bounds, *tables)
            return result
        slope = torch.where(self.real & (distance > 0), weight / distance, 0.0).to(rows.dtype)
        result = torch.zeros_like(rows)
        place = torch.arange(len(rows), device=rows.device) - self.low
        for start, stop, column in self._small(rows.shape[1]):
            # Pair (i, j) pulls on i with the slope of (i, j) and with that of (j, i).
            both = slope[start:stop, : column.shape[1]] + slope[column, place[start:stop, None]]
            both.masked_fill_(~self.real[start:stop, : column.shape[1]], 0.0)
            gap = rows[column].sub_(rows[start:stop, None])
            result[start:stop] = torch.bmm(both[:, None], gap)[:, 0].neg_()
        for low, high in self._large():
            own = slope[low:high, : high - low]
            both = own + own.T
            centred = rows[low:high] - rows[low:high].mean(dim=0)
            result[low:high] = both.sum(1, keepdim=True) * centred - both @ centred
        return result

    def _small(self, dim: int) -> Iterator[tuple[int, int, Tensor]]:
        """Row ranges of the small classes, a few at a time, with the columns of their classes."""
        rows = sum(k for k in self.sizes if k <= _SMALL)
        widest = max((k for k in self.sizes if k <= _SMALL), default=1)
        chunk = max(1, _ELEMENTS // (widest * dim))
        for start in range(0, rows, chunk):
            stop = min(rows, start + chunk)
            yield start, stop, self.columns(start, stop)

    def _large(self) -> Iterator[tuple[int, int]]:
        """Column ranges of the large classes."""
        high = 0
        for size in self.sizes:
            high += size
            if size > _SMALL:
                yield high - size, high
