"""Blocks of anchors, and their nearest and farthest rows as float64 differences choose them.

One pass over float32 products finds the winner and whether another is within their rounding error.
Such a row is done again in float64, and what is within the far smaller error there is measured by
differences of the given rows. On a device, which would be waited for to learn of such rows, all are
measured by differences. Ties go to the lowest index.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from uncollapse.distances.frame import (
    Batch,
    Frame,
    exact_squares,
    on_host,
    row_argmin,
    short_squares,
)
from uncollapse.mining.random import draw_pool

_PRODUCTS = 1 << 20  # products held at a time: 4 MB of float32
_PRODUCTS_ELSEWHERE = 1 << 25
_INF = float("inf")


def anchor_blocks(
    batch: Batch, generator: torch.Generator | None, rows: Tensor | None = None
) -> Iterator[AnchorBlock]:
    """Usable anchors (or these rows), ascending, a block at a time."""
    anchors = batch.classes.anchors if rows is None else rows
    n = len(batch.classes.order)
    host = on_host(anchors)
    held = _PRODUCTS if host else _PRODUCTS_ELSEWHERE
    step = max(64, min(256 if host else n, held // n))
    own, real = batch.classes.table
    every = len(anchors) == len(own)  # then slices do, and nothing is gathered
    for start in range(0, len(anchors), step):
        some = anchors[start : start + step]
        at = slice(start, start + len(some)) if every else some
        yield AnchorBlock(batch, some, at, own[at], real[at], None, generator)


@dataclass
class AnchorBlock:
    """Some anchors of a batch; `at` are the same rows, as a slice where they are one.

    `own[i]` are the candidates of anchor i's class, of which `valid[i]` may be chosen; `pool[i]`
    marks the negatives anchor i may choose, and None stands for all of them.
    """

    batch: Batch
    anchors: Tensor
    at: Tensor | slice
    own: Tensor
    valid: Tensor
    pool: Tensor | None
    generator: torch.Generator | None

    @cached_property
    def plain(self) -> BlockDistances:
        """Distances of the rows as the batch has them."""
        return BlockDistances(self, self.batch.frame)

    @cached_property
    def normalized(self) -> BlockDistances:
        """Distances on the unit sphere."""
        return BlockDistances(self, self.batch.frame.normalized)

    @cached_property
    def every(self) -> Tensor:
        """Row numbers of the block; `rows is block.every` means that nothing needs gathering."""
        return torch.arange(len(self.anchors), device=self.anchors.device)

    def hidden(self) -> Tensor:
        """`[b, N]`: which candidates are no negatives."""
        shape = len(self.anchors), len(self.batch.classes.order)
        mask = torch.zeros(shape, dtype=torch.bool, device=self.anchors.device)
        mask.scatter_(1, self.own, True)
        if not self.batch.classes.apart:
            mask.scatter_(1, self.anchors[:, None], True)
        return mask

    def negatives(self) -> Tensor:
        """`[b, N]`: which candidates may be chosen as negatives."""
        return ~self.hidden() if self.pool is None else self.pool

    def draw(self, pool: int) -> None:
        """Let each anchor choose among a random `pool` of the others only."""
        if pool < len(self.batch.classes.order) - 1:
            hidden = ~self.negatives()
            self.valid, self.pool = draw_pool(pool, self.own, self.valid, hidden, self.generator)

    def hide(self, values: Tensor) -> None:
        """Put infinity where a negative may not be chosen."""
        values.scatter_(1, self.own, _INF)
        if not self.batch.classes.apart:
            values.scatter_(1, self.anchors[:, None], _INF)
        if self.pool is not None:
            values.masked_fill_(~self.pool, _INF)

    def take(self, rows: Tensor) -> AnchorBlock:
        """The block of `anchors[rows]`, which may repeat."""
        pool = None if self.pool is None else self.pool[rows]
        anchors, own, valid = self.anchors[rows], self.own[rows], self.valid[rows]
        return AnchorBlock(self.batch, anchors, anchors, own, valid, pool, self.generator)


class BlockDistances:
    """Distances of a block's anchors in one frame; squared, in the frame's coordinates.

    Products are short squares; whole ones, by differences, where they are `exact`: on a device.
    """

    def __init__(self, block: AnchorBlock, frame: Frame) -> None:
        self.block, self.frame = block, frame
        self.exact = not on_host(frame.norms)
        self._products: Tensor | None = None
        self.own_products = frame.norms[:0]  # products with `own`, once there are any

    @property
    def candidates(self) -> slice:
        """Rows of the frame that are candidates."""
        return slice(self.block.batch.offset, len(self.frame))

    @cached_property
    def error(self) -> Tensor:
        """`[b, 1]`: a bound on the error of a product of these anchors with any candidate."""
        band = self.frame.band
        return (band[self.block.at] + band.amax())[:, None]

    def squares(self, rows: Tensor, column: Tensor) -> Tensor:
        """Of the rows of the block to candidates `[len(rows)]` or `[len(rows), k]`, exactly."""
        return self.frame.squares(self.block.anchors[rows], column + self.block.batch.offset)

    def distances(self, rows: Tensor, column: Tensor) -> Tensor:
        """The same as the caller's distances."""
        return self.squares(rows, column).sqrt_().mul_(self.frame.unit)

    def products(self) -> Tensor:
        """Products, infinite where no negative may be chosen; do not change them."""
        if self._products is None:
            squares = exact_squares if self.exact else short_squares
            values = squares(self.frame, self.block.at, self.frame, self.candidates)
            self.own_products = values.gather(1, self.block.own)
            self.block.hide(values)
            self._products = values
        return self._products

    def spend_products(self) -> Tensor:
        """The same, to be overwritten."""
        values, self._products = self.products(), None
        return values

    def nearest_negative(self, *, farthest: bool = False) -> Tensor:
        """Nearest (or farthest) negative of each anchor."""
        if not farthest:
            return self.search(self.products(), self.block.every)[0]
        values = self.spend_products().neg_()
        self.block.hide(values)
        return self.search(values, self.block.every, farthest=True)[0]

    def negatives_within(self, limit: Tensor) -> Tensor:
        """`[b, N]`: which negatives are at squared distances below `limit` `[b]`, exactly."""
        if self.exact:
            return self.products() < limit[:, None]
        own = self.frame.norms[self.block.anchors]
        gap = self.products() - (limit - own).to(own.dtype)[:, None]
        within = gap < 0
        r, c = (gap.abs_() <= self.error).nonzero(as_tuple=True)
        within[r, c] = self.squares(r, c) < limit[r]
        return within

    @cached_property
    def own_squares(self) -> Tensor:
        """Squared distances to `own`, exactly."""
        return self.squares(self.block.every, self.block.own)

    def extreme_own(self, allowed: Tensor, *, farthest: bool) -> Tensor:
        """Column of the nearest or farthest allowed positive; the first of equals."""
        squares = -self.own_squares if farthest else self.own_squares
        return row_argmin(squares.masked_fill(~allowed, _INF))

    def search(
        self,
        values: Tensor,
        rows: Tensor,
        *,
        beyond: tuple[Tensor, Tensor] | None = None,
        farthest: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Nearest column of each of the block's `rows`, if asked only `beyond` another.

        Returns `(index, exists)`. `values` are the products of those rows, hidden; with `farthest`
        they are of opposite sign. `beyond` are for each row a candidate `[r]` whose distance must
        be exceeded, and the product with it; the values are then overwritten.
        """
        if self.exact:
            if beyond is not None:
                values.masked_fill_(values <= beyond[1][:, None], _INF)
            column = row_argmin(values)
            return column, values.gather(1, column[:, None]).flatten() < _INF
        error = self.error if rows is self.block.every else self.error[rows]
        bound = None if beyond is None else beyond[1][:, None] - 2 * error
        column, exists, doubtful = _lowest(values, error, bound)
        if self.frame.collapsed:  # no distance exceeds another
            return column, exists if beyond is None else torch.zeros_like(exists)
        step = max(1, _PRODUCTS // 2 // self.block.batch.candidates)
        for some in torch.split(doubtful, step) if len(doubtful) else ():
            limit = None if beyond is None else self.squares(rows[some], beyond[0][some])[:, None]
            column[some], exists[some] = self._settle(rows[some], limit, farthest)
        return column, exists

    def _settle(
        self, rows: Tensor, above: Tensor | None, farthest: bool, exactly: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The same search in float64, with differences where even that could mislead."""
        frame, anchors = self.frame.fine, self.block.anchors[rows]
        error = (frame.band[anchors] + frame.band.amax())[:, None]
        sign = -1.0 if farthest else 1.0
        values = short_squares(frame, anchors, frame, self.candidates)
        values.add_(frame.norms[anchors][:, None]).mul_(sign)
        self.block.take(rows).hide(values)
        if not exactly:
            bound = None if above is None else above - 2 * error
            index, exists, left = _lowest(values, error, bound)
            if len(left):
                limit = None if above is None else above[left]
                index[left], exists[left] = self._settle(rows[left], limit, farthest, exactly=True)
            return index, exists

        def measure(near: Tensor) -> None:
            r, c = near.nonzero(as_tuple=True)
            values[r, c] = sign * self.squares(rows[r], c)

        if above is not None:
            measure((values - above).abs() <= error)
            values.masked_fill_(values <= above, _INF)
        best = values.amin(dim=1, keepdim=True)
        measure((values <= best + 2 * error) & (values < _INF))
        index = row_argmin(values)
        return index, values.gather(1, index[:, None]).flatten() < _INF


def _lowest(values: Tensor, error: Tensor, bound: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The lowest of values that are off by up to `error`, above a bound that is off by twice that.

    Returns the column of each row's lowest, whether there is one, and the rows in which rounding
    may have hidden another. With a bound the values are overwritten.
    """
    if bound is not None:  # subtracting and a threshold take a tenth of the time of a mask
        torch.threshold_(values.sub_(bound), 0.0, _INF)
    column = row_argmin(values)[:, None]
    best = values.gather(1, column)
    second = values.scatter_(1, column, _INF).amin(1, keepdim=True)
    values.scatter_(1, column, best)
    doubt = second <= best + 2 * error
    if bound is not None:
        doubt |= best <= 4 * error
    exists = best < _INF
    return column.flatten(), exists.flatten(), (doubt & exists).flatten().nonzero().flatten()
