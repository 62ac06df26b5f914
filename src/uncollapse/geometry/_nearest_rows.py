"""Rows of a cone program over points: assembled as arrays, solved by Clarabel."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse._base.extras import import_extra

__all__ = ["ConeRows", "cone_solver", "quiet_settings"]


def cone_solver() -> ModuleType:
    """Clarabel, which nothing else needs: an extra."""
    return import_extra("clarabel", extra="geometry")


def quiet_settings() -> Any:
    """Its settings on one thread, without a log."""
    settings = cone_solver().DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    return settings


class ConeRows:
    """Constraints b - A v in K on unknowns v whose first n·dim entries are the points, row by row.

    Linear rows come first. A row that names a pair (i, j) also holds -u·(z_i - z_j), with the
    direction u of the pair given only when the program is solved.
    """

    def __init__(self, n: int, dim: int, width: int) -> None:
        self.n, self.dim, self.width = n, dim, width
        self.height = 0
        self.kinds: list[Any] = []
        self._entries: list[tuple[Array, Array, Array]] = []
        self._rhs: list[Array] = []
        self._directed: list[tuple[Array, Array]] = []  # row, pair
        self._linear = 0

    def linear(
        self, entries: list[tuple[Array, float]], rhs: Array, pairs: Array | None = None
    ) -> None:
        """Σ factor·v[column] (- u·(z_i - z_j)) <= rhs, one row for each entry of `rhs`."""
        rows = self.height + np.arange(len(rhs))
        for columns, factor in entries:
            self._entries.append((rows, columns, np.full(len(rows), factor)))
        if pairs is not None:
            self._directed.append((rows, pairs))
        self._extend(rhs)
        self._linear += len(rhs)

    def cones(
        self,
        head: Array,
        extra: Array,
        i: Array,
        j: Array | None = None,
        offset: Array | None = None,
    ) -> None:
        """‖z_i - z_j‖ <= v[head] + extra, or ‖z_i - offset_i‖ where there is no j."""
        count, dim = len(head), self.dim
        first = self.height + (dim + 1) * np.arange(count)
        tail = (first[:, None] + 1 + np.arange(dim)).ravel()
        self._entries.append((first, head, np.full(count, -1.0)))
        self._entries.append((tail, self._columns(i), np.full(count * dim, -1.0)))
        rhs = np.zeros((count, dim + 1))
        rhs[:, 0] = extra
        if j is not None:
            self._entries.append((tail, self._columns(j), np.full(count * dim, 1.0)))
        if offset is not None:
            rhs[:, 1:] = -offset
        self.kinds += [cone_solver().SecondOrderConeT(dim + 1)] * count
        self._extend(rhs.ravel())

    def solve(
        self, cost: Array, direction: Array, pairs: tuple[Array, Array], settings: Any
    ) -> Array | None:
        """argmin of cost·v, or None where the solver found none."""
        from scipy import sparse

        clarabel = cone_solver()
        entries = list(self._entries)
        for rows, pair in self._directed:
            where = np.repeat(rows, self.dim)
            u = direction[pair].ravel()
            entries.append((where, self._columns(pairs[0][pair]), -u))
            entries.append((where, self._columns(pairs[1][pair]), u))
        rows, columns, values = (np.concatenate(part) for part in zip(*entries, strict=True))
        matrix = sparse.csc_matrix((values, (rows, columns)), shape=(self.height, self.width))
        quadratic = sparse.csc_matrix((self.width, self.width))
        kinds = [clarabel.NonnegativeConeT(self._linear), *self.kinds]
        rhs = np.concatenate(self._rhs)
        answer = clarabel.DefaultSolver(quadratic, cost, matrix, rhs, kinds, settings).solve()
        v = np.array(answer.x)
        usable = str(answer.status) in ("Solved", "AlmostSolved") and bool(np.isfinite(v).all())
        return v if usable else None

    def _columns(self, points: Array) -> Array:
        columns: Array = (points[:, None] * self.dim + np.arange(self.dim)).ravel()
        return columns

    def _extend(self, rhs: Array) -> None:
        self._rhs.append(np.asarray(rhs, float))
        self.height += len(rhs)
