"""A labelled batch as the strategies see it: block by block of anchors, with or without a pool."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from uncollapse._classes import ClassLayout
from uncollapse.mining._frame import Frame
from uncollapse.mining._random import draw_pool, uniform
from uncollapse.mining._search import search

__all__ = ["Batch", "Block"]

_BLOCK = {"cpu": 1 << 20}  # products held at a time: 4 MB of float32 stay in the second-level cache
_BLOCK_ELSEWHERE = 1 << 25
_SMALL_CLASS = 32  # up to here the distances inside a class are direct differences


class Batch:
    """The rows, their classes, and the two frames: as they are, and on the unit sphere."""

    def __init__(self, x: Tensor, layout: ClassLayout, generator: torch.Generator | None) -> None:
        self.x, self.layout, self.generator, self.device = x, layout, generator, x.device
        self.own = layout.positives.to(x.device)
        self.real = layout.is_positive.to(x.device)
        self.order = torch.from_numpy(layout.order).to(x.device)

    @cached_property
    def plain(self) -> Frame:
        """The rows as given."""
        return Frame.of(self.x)

    @cached_property
    def sphere(self) -> Frame:
        """The rows divided by their norms."""
        return Frame.on_sphere(self.x)

    def blocks(self, pool: int | None) -> Iterator[Block]:
        """Usable anchors in ascending order, a block at a time; pools are drawn where asked."""
        n = self.layout.size
        usable = torch.from_numpy(np.flatnonzero(self.layout.usable)).to(self.device)
        budget = _BLOCK.get(self.device.type, _BLOCK_ELSEWHERE)
        step = max(64, min(256 if self.device.type == "cpu" else n, budget // n))
        buffer = torch.empty(min(step, n), n, dtype=torch.float32, device=self.device)
        for start in range(0, len(usable), step):
            anchors = usable[start : start + step]
            own, valid = self.own[anchors], self.real[anchors]
            if pool is None or pool >= n - 1:
                yield Block(self, anchors, own, valid, None, buffer)
            else:
                positives, negatives = draw_pool(pool, anchors, own, valid, n, self.generator)
                yield Block(self, anchors, own, positives, negatives, buffer)


@dataclass
class Block:
    """Some anchors; `own[i]` are the rows of anchor i's class, of which `valid[i]` may be chosen.

    `pool[i]` marks the negatives anchor i may choose; None stands for all of them.
    """

    batch: Batch
    anchors: Tensor
    own: Tensor
    valid: Tensor
    pool: Tensor | None
    buffer: Tensor
    known: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def hide(self, values: Tensor, rows: Tensor) -> None:
        """Put infinity where a negative may not be chosen."""
        values.scatter_(1, self.own[rows], float("inf"))
        values.scatter_(1, self.anchors[rows][:, None], float("inf"))
        if self.pool is not None:
            values.masked_fill_(~self.pool[rows], float("inf"))

    @cached_property
    def every(self) -> Tensor:
        """Row numbers of the block."""
        return torch.arange(len(self.anchors), device=self.anchors.device)

    def products(self, frame: Frame, *, opposite: bool = False) -> Tensor:
        """Coarse products with what may not be chosen at infinity. Valid until the next call."""
        fits = self.buffer.dtype == frame.coarse.rows.dtype
        values = frame.coarse.block(self.anchors, self.buffer if fits else None)
        if opposite:
            values.neg_()
        self.hide(values, self.every)
        return values

    def nearest_negative(self, frame: Frame, *, farthest: bool = False) -> Tensor:
        """Nearest (or farthest) negative of each anchor."""
        values = self.products(frame, opposite=farthest)
        return search(frame, values, self.anchors, self.hide, farthest=farthest)[0]

    def negatives(self) -> Tensor:
        """`[b, N]`: which rows may be chosen as negatives."""
        if self.pool is not None:
            return self.pool
        shape = len(self.anchors), self.batch.layout.size
        mask = torch.ones(shape, dtype=torch.bool, device=self.anchors.device)
        mask.scatter_(1, self.own, False)
        return mask.scatter_(1, self.anchors[:, None], False)

    def own_squares(self, frame: Frame) -> tuple[Tensor, Tensor]:
        """Squared distances to `own`, and a bound `[b, 1]` of their error (0: exact)."""
        if id(frame) not in self.known:
            if self.own.shape[1] <= _SMALL_CLASS:
                squares = frame.squares(self.anchors, self.own)
                self.known[id(frame)] = squares, squares.new_zeros(len(squares), 1)
            else:
                self.known[id(frame)] = self._large_class_squares(frame)
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
        """Column of the nearest or farthest allowed positive; the first of equals."""
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
        part = Block(
            self.batch, self.anchors[rows], self.own[rows], self.valid[rows], pool, self.buffer
        )
        part.known = {key: (v[rows], error[rows]) for key, (v, error) in self.known.items()}
        return part

    def _measure(self, frame: Frame, squares: Tensor, near: Tensor) -> None:
        """Replace the marked squared distances to `own` by exact ones."""
        r, c = near.nonzero(as_tuple=True)
        squares[r, c] = frame.squares(self.anchors[r], self.own[r, c])

    def _large_class_squares(self, frame: Frame) -> tuple[Tensor, Tensor]:
        """Products about each class's own centre, in the working dtype."""
        layout = self.batch.layout
        squares = torch.full(self.own.shape, float("inf"), dtype=frame.points.dtype)
        squares = squares.to(self.anchors.device)
        error = squares.new_zeros(len(squares), 1)
        ids = torch.from_numpy(layout.ids).to(self.anchors.device)[self.anchors]
        unit = torch.finfo(squares.dtype).eps
        for c in np.unique(ids.cpu().numpy()).tolist():
            rows = (ids == c).nonzero().flatten()
            members = torch.from_numpy(layout.members(c)).to(self.anchors.device)
            w = frame.points[members]
            w = w - w[0]
            w -= w.mean(dim=0) if bool(w.any()) else 0.0
            norm = (w * w).sum(dim=1)
            mine = torch.searchsorted(members, self.anchors[rows])
            full = torch.addmm(norm, w[mine], w.T, alpha=-2.0) + norm[mine][:, None]
            column = torch.arange(len(members) - 1, device=members.device)
            skip = column + (column >= mine[:, None]).long()  # `own` leaves the anchor out
            squares[rows, : len(members) - 1] = full.gather(1, skip).clamp_min(0.0)
            error[rows] = unit * (4 * w.shape[1] ** 0.5 + 20) * norm.max()
        return squares, error


def first_argmin(values: Tensor) -> Tensor:
    """argmin of each row, the lowest index of equals."""
    if values.device.type == "cpu":
        return torch.from_numpy(values.numpy().argmin(axis=1))
    return values.argmin(dim=1)
