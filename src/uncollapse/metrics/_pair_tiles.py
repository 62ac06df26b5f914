"""Distances of all pairs of labelled rows, a tile at a time, and how many lie below thresholds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array
from uncollapse.distances import paired_distances, pairwise_distances

__all__ = ["Counts", "LabelledPairs", "listed", "settled"]

_TILE = 1 << 22  # distances at a time: 32 MB
_CHUNK = 1 << 14  # pairs measured at a time where they are listed
_BITS = 52 - 33  # of a float64's fraction that are rounding: products are right to about 1e-10
_SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")  # below, and at or below


@dataclass(frozen=True)
class Counts:
    """Pairs nearer than (`_lt`), or at most as far as (`_le`) each of the ascending `grid`."""

    grid: Array
    same: int
    different: int
    same_lt: Array
    same_le: Array
    different_lt: Array
    different_le: Array

    @classmethod
    def of_lists(cls, same: Array, different: Array) -> Counts:
        """Counts at every distinct value of `same`: all that a curve can be asked."""
        grid = np.unique(same)
        parts: list[Array] = []
        for u in (same, different):
            ordered = np.sort(u)
            parts += [np.searchsorted(ordered, grid, side) for side in _SIDES]
        return cls(grid, len(same), len(different), *parts)


@dataclass(frozen=True)
class LabelledPairs:
    """All pairs of float64 rows `x`, which are in the order of their class `ids`.

    >>> pairs = LabelledPairs(torch.tensor([[0.0], [1.0], [3.0]]).double(), np.array([0, 0, 1]))
    >>> [(c, u.tolist()) for c, u in pairs.same()], [u.tolist() for u in pairs.different()]
    ([(0, [1.0])], [[3.0, 2.0]])
    """

    x: Tensor
    ids: Array

    @property
    def sizes(self) -> Array:
        """Rows of each class."""
        return np.bincount(self.ids)

    @property
    def same_count(self) -> int:
        """Pairs of one class."""
        return int((self.sizes * (self.sizes - 1) // 2).sum())

    @property
    def different_count(self) -> int:
        """Pairs of two classes."""
        n = len(self.ids)
        return n * (n - 1) // 2 - self.same_count

    def same(self) -> Iterator[tuple[int, Array]]:
        """The distances inside each class, in parts: the class, and some of its pairs."""
        starts = np.r_[0, np.cumsum(self.sizes)]
        for c, (low, high) in enumerate(pairwise(starts.tolist())):
            for a, b, block in self._blocks(low, high, partial(_rest_of, high)):
                upper = np.arange(a + 1, high) > np.arange(a, b)[:, None]
                yield c, settled(block[upper])

    def different(self, report: Callable[[int, int], None] | None = None) -> Iterator[Array]:
        """The distances between classes, in parts: each pair once."""
        n, ends = len(self.ids), np.cumsum(self.sizes)
        for a, b, block in self._blocks(0, n, lambda row: (int(ends[self.ids[row]]), n)):
            later = self.ids[n - block.shape[1] :] > self.ids[a:b, None]
            yield settled(block[later])
            if report is not None:  # rows a and later have the rest of the pairs
                report(n * n - (n - b) ** 2, n * n)

    def drawn(self, count: int, rng: np.random.Generator) -> Array:
        """Distances of same-class pairs drawn at random, every pair alike."""
        sizes = self.sizes
        weight = sizes * (sizes - 1.0)
        c = rng.choice(len(sizes), count, p=weight / weight.sum())
        first = rng.integers(sizes[c])
        second = (first + 1 + rng.integers(sizes[c] - 1)) % sizes[c]
        starts = np.r_[0, np.cumsum(sizes)[:-1]]
        return listed(self.x, starts[c] + first, starts[c] + second)

    def counts(self, grid: Array, report: Callable[[int, int], None]) -> Counts:
        """How many pairs lie below each value of the ascending grid: exact at each of them."""
        parts: list[Array] = [np.zeros(len(grid), np.int64) for _ in range(4)]
        for place, tiles in ((0, (u for _, u in self.same())), (2, self.different(report))):
            for tile in _gathered(tiles):
                tile.sort()
                for i, side in enumerate(_SIDES):
                    parts[place + i] += np.searchsorted(tile, grid, side)
        return Counts(grid, self.same_count, self.different_count, *parts)

    def _blocks(
        self, low: int, high: int, columns: Callable[[int], tuple[int, int]]
    ) -> Iterator[tuple[int, int, Array]]:
        """Rows low to high in blocks [a, b), each against the columns that row a needs."""
        a = low
        while a < high:
            start, end = columns(a)
            if start >= end:
                return
            b = min(high, a + max(1, _TILE // (end - start)))
            yield a, b, pairwise_distances(self.x[a:b], self.x[start:end]).numpy()
            a = b


def _rest_of(end: int, row: int) -> tuple[int, int]:
    """The rows after this one, up to the end."""
    return row + 1, end


def listed(x: Tensor, first: Array, second: Array) -> Array:
    """The distance of each listed pair of rows."""
    i, j = torch.from_numpy(first.astype(np.int64)), torch.from_numpy(second.astype(np.int64))
    parts = [
        paired_distances(x[i[at : at + _CHUNK]], x[j[at : at + _CHUNK]]).numpy()
        for at in range(0, len(i), _CHUNK)
    ]
    return settled(np.concatenate(parts))


def settled(distances: Array) -> Array:
    """Distances to 33 bits: those that differ by their rounding alone become equal.

    >>> settled(np.array([0.1 + 0.2, 0.3])).tolist().count(settled(np.array([0.3]))[0])
    2
    """
    bits = np.ascontiguousarray(distances, np.float64).copy().view(np.int64)
    bits += 1 << (_BITS - 1)
    bits &= -1 << _BITS
    return bits.view(np.float64)


def _gathered(tiles: Iterator[Array]) -> Iterator[Array]:
    """Small tiles together, so that the whole grid is not looked up for each."""
    held: list[Array] = []
    size = 0
    for tile in tiles:
        held.append(tile)
        size += len(tile)
        if size >= _TILE // 2:
            yield np.concatenate(held)
            held, size = [], 0
    if size:
        yield np.concatenate(held)
