"""A labelled batch as the strategies see it: block by block of anchors, with or without a pool."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array
from uncollapse._base.classes import ClassLayout
from uncollapse.mining._frame import Frame
from uncollapse.mining._own import large_class_squares
from uncollapse.mining._random import draw_pool, uniform
from uncollapse.mining._search import first_argmin, scan, search

__all__ = ["Batch", "Block"]


_BLOCK = 1 << 20  # products held at a time: 4 MB of float32
_BLOCK_ELSEWHERE = 1 << 25
_SMALL_CLASS = 32  # up to here the distances inside a class are direct differences


class Batch:
    """The rows, their classes, and the two frames: as they are, and on the unit sphere."""

    def __init__(self, x: Tensor, layout: ClassLayout, generator: torch.Generator | None) -> None:
        self.x, self.layout, self.generator, self.device = x, layout, generator, x.device
        self.buffers: dict[int, Tensor] = {}
        on_cpu, n = x.device.type == "cpu", layout.size
        held = _BLOCK if on_cpu else _BLOCK_ELSEWHERE
        self.step = min(n, max(64, min(256 if on_cpu else n, held // n)))

    @cached_property
    def own(self) -> Tensor:
        """Rows of each row's class, `[N, K]`, filled up with the row itself."""
        return self.layout.positives.to(self.device)

    @cached_property
    def real(self) -> Tensor:
        """Which of `own` are not filled up."""
        return self.layout.is_positive.to(self.device)

    @cached_property
    def plain(self) -> Frame:
        """The rows as given."""
        return Frame.of(self.x)

    @cached_property
    def sphere(self) -> Frame:
        """The rows divided by their norms."""
        return Frame.on_sphere(self.x)

    def blocks(self, pool: int | None, rows: Array | None = None) -> Iterator[Block]:
        """Usable anchors (or these rows), ascending, a block at a time, with pools where asked."""
        n = self.layout.size
        usable = np.flatnonzero(self.layout.usable) if rows is None else rows
        for start in range(0, len(usable), self.step):
            anchors = torch.from_numpy(usable[start : start + self.step]).to(self.device)
            # Where every row is an anchor the block is a view of everything.
            at = slice(start, start + len(anchors)) if len(usable) == n else anchors
            own, valid, negatives = self.own[at], self.real[at], None
            if pool is not None and pool < n - 1:
                valid, negatives = draw_pool(pool, anchors, own, valid, n, self.generator)
            yield Block(self, anchors, at, own, valid, negatives)


@dataclass
class Block:
    """Some anchors; `at` indexes the same rows.

    `own[i]` are the rows of anchor i's class, of which `valid[i]` may be chosen; `pool[i]` marks
    the negatives anchor i may choose, and None stands for all of them.
    """

    batch: Batch
    anchors: Tensor
    at: slice | Tensor
    own: Tensor
    valid: Tensor
    pool: Tensor | None = None
    known: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    held: dict[int, Tensor] = field(default_factory=dict)
    own_coarse: dict[int, Tensor] = field(default_factory=dict)

    def hide(self, values: Tensor, rows: Tensor | None = None) -> None:
        """Put infinity where a negative may not be chosen, for all or for the given rows."""
        every = rows is None
        values.scatter_(1, self.own if every else self.own[rows], float("inf"))
        anchors = self.anchors if every else self.anchors[rows]
        values.scatter_(1, anchors[:, None], float("inf"))
        if self.pool is not None:
            values.masked_fill_(~(self.pool if every else self.pool[rows]), float("inf"))

    @cached_property
    def every(self) -> Tensor:
        """Row numbers of the block."""
        return torch.arange(len(self.anchors), device=self.anchors.device)

    def bare_products(self, frame: Frame) -> Tensor:
        """Coarse products with all rows, in a buffer that the batch has for one block at a time."""
        buffers, key = self.batch.buffers, id(frame)
        if key not in buffers:
            shape = self.batch.step, self.batch.layout.size
            buffers[key] = frame.coarse.rows.new_empty(shape)
        return frame.coarse.block(self.at, buffers[key])

    def products(self, frame: Frame) -> Tensor:
        """Coarse products with what may not be chosen at infinity; do not change them."""
        key = id(frame)
        if key not in self.held:
            values = self.bare_products(frame)
            self.own_coarse[key] = values.gather(1, self.own)
            self.hide(values)
            self.held[key] = values
        return self.held[key]

    def spend_products(self, frame: Frame) -> Tensor:
        """The same, to be overwritten."""
        values = self.products(frame)
        del self.held[id(frame)]
        return values

    def nearest_negative(self, frame: Frame, *, farthest: bool = False) -> Tensor:
        """Nearest (or farthest) negative of each anchor."""
        if not farthest:
            return search(frame, self.products(frame), self)[0]
        values = self.spend_products(frame).neg_()
        self.hide(values)
        return search(frame, values, self, farthest=True)[0]

    def negatives(self) -> Tensor:
        """`[b, N]`: which rows may be chosen as negatives."""
        if self.pool is not None:
            return self.pool
        shape = len(self.anchors), self.batch.layout.size
        mask = torch.ones(shape, dtype=torch.bool, device=self.anchors.device)
        mask.scatter_(1, self.own, False)
        return mask.scatter_(1, self.anchors[:, None], False)

    def at_own(self, table: Tensor, rows: Tensor, column: Tensor) -> Tensor:
        """`table[rows, column]` for a table that is `own` or goes with it."""
        if rows is self.every:
            return table.gather(1, column[:, None]).flatten()
        return table[rows, column]

    def own_squares(self, frame: Frame) -> tuple[Tensor, Tensor]:
        """Squared distances to `own`, and a bound `[b, 1]` of their error (0: exact)."""
        if id(frame) not in self.known:
            if self.own.shape[1] <= _SMALL_CLASS:
                squares = frame.squares(self.at, self.own)
                self.known[id(frame)] = squares, squares.new_zeros(len(squares), 1)
            else:
                layout = self.batch.layout
                self.known[id(frame)] = large_class_squares(frame, layout, self.anchors, self.own)
        return self.known[id(frame)]

    def own_squares_near(self, frame: Frame, limit: Tensor) -> Tensor:
        """The same, exact wherever the order relative to `limit` `[b]` could depend on it."""
        squares, error = self.own_squares(frame)
        if self.own.shape[1] > _SMALL_CLASS:
            self._measure(frame, squares, (squares - limit[:, None]).abs() <= error)
        return squares

    def nearest_own(self, frame: Frame) -> Tensor:
        """Column of the nearest valid positive."""
        return self.extreme_own(frame, self.valid, farthest=False)

    def extreme_own(self, frame: Frame, allowed: Tensor, *, farthest: bool) -> Tensor:
        """Column of the nearest or farthest allowed positive; the first of equals.

        Where the products are there anyway they decide, as far as rounding lets them.
        """
        key = id(frame)
        if key in self.known or key not in self.held:
            return self._extreme_exact(frame, allowed, farthest)
        values = self.own_coarse[key]
        values = (-values if farthest else values).masked_fill(~allowed, float("inf"))
        column, _, _, row, _ = scan(values, frame.coarse.error[self.at][:, None], None)
        if len(row) and not frame.collapsed:
            doubtful = torch.from_numpy(np.unique(row)).to(column.device)
            part = self.take(doubtful)
            column[doubtful] = part._extreme_exact(frame, allowed[doubtful], farthest)
        return column

    def _extreme_exact(self, frame: Frame, allowed: Tensor, farthest: bool) -> Tensor:
        squares, error = self.own_squares(frame)
        sign = -1.0 if farthest else 1.0
        values = (sign * squares).masked_fill_(~allowed, float("inf"))
        if self.own.shape[1] > _SMALL_CLASS:
            best = values.amin(dim=1, keepdim=True)
            self._measure(frame, squares, (values <= best + 2 * error) & allowed)
            values = (sign * squares).masked_fill_(~allowed, float("inf"))
        return first_argmin(values)

    def pick(self, allowed: Tensor) -> Tensor:
        """A uniformly random True column of each row."""
        count = allowed.sum(dim=1)
        place = (uniform(len(count), self.batch.generator, count.device) * count).long()
        return (allowed.cumsum(dim=1) <= place[:, None]).sum(dim=1)

    def take(self, rows: Tensor) -> Block:
        """The block of `anchors[rows]`, which may repeat."""
        pool = None if self.pool is None else self.pool[rows]
        anchors = self.anchors[rows]
        part = Block(self.batch, anchors, anchors, self.own[rows], self.valid[rows], pool)
        part.known = {key: (v[rows], error[rows]) for key, (v, error) in self.known.items()}
        return part

    def _measure(self, frame: Frame, squares: Tensor, near: Tensor) -> None:
        """Replace the marked squared distances to `own` by exact ones."""
        r, c = near.nonzero(as_tuple=True)
        squares[r, c] = frame.squares(self.anchors[r], self.own[r, c])
