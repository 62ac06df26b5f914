"""Pairs inside the classes of a batch, and pairs across them: distances and gradients.

Two tight classes far apart leave no digits of a within-class distance in the batch's own frame.
Differences of float64 rows keep them. Across
classes one product of the batch's rows will do; the few pairs that are close beside the spread of
the batch are measured, and pulled on, by differences. On a device, which would be waited for to
know these pairs, all are measured by differences, and pulled on by products in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from uncollapse.distances.frame import (
    Batch,
    Frame,
    exact_squares,
    on_host,
    short_squares,
    squared_norms,
)
from uncollapse.distances.tiles import (
    BLOCK,
    Forces,
    close_exponents,
    close_pairs,
    lengths,
    pull_apart,
    take_apart,
)

# From the logits of the positives `[b, K]`, `NONE` where there is none, log Σ exp of the logits of
# the negatives that count `[b, 1]`, and the largest logit of all negatives: the rows' losses
# `[b, 1]`, and their derivatives by the first two arguments, 0 for missing entries.
Charge = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]

NONE = -1e30  # exponent of a missing entry
SMALLEST = -80.0  # an exponent below it adds nothing, and takes ten times as long
FAR = 1e18  # stands for the distance to a row that is not a negative
_TINY = 1e-36  # square roots of exact zeros are slow
_ELEMENTS = 1 << 18  # differences held at a time: 2 MB in float64, so they stay in cache


@dataclass(frozen=True, eq=False)
class ByClass:
    """The rows of a batch in class order, small classes first.

    `frame` has the batch's rows in that order. Row i's class is columns `low[i]` to `high[i]`. A
    table `[N, width]` holds in entry (i, k) something about the pair (i, low[i] + k).
    """

    order: Tensor
    frame: Frame
    low: Tensor
    high: Tensor
    width: int

    @classmethod
    def of(cls, batch: Batch) -> ByClass:
        """Put a batch without references in class order."""
        classes, n = batch.classes, batch.count
        size = classes.high - classes.low
        # Row after row of `order` is class after class; moved so that small classes come first.
        key = (size * n + classes.low)[classes.order]
        sorted_key, rank = torch.sort(key, stable=True)
        order = classes.order[rank]
        low = torch.searchsorted(sorted_key, sorted_key)
        frame = batch.frame if on_host(order) else batch.frame.fine
        return cls(order, frame.at(order), low, low + size[order], classes.most + 1)

    @property
    def wide(self) -> Tensor:
        """The rows in float64, in the frame's coordinates."""
        return self.frame.wide

    @cached_property
    def real(self) -> Tensor:
        """`[N, width]`: which entries of a table are pairs of two rows."""
        column = self.low[:, None] + torch.arange(self.width, device=self.low.device)
        row = torch.arange(len(self.low), device=self.low.device)[:, None]
        return (column < self.high[:, None]) & (column != row)

    @property
    def compiled(self) -> Any:
        """The compiled kernels, or None where they cannot be used."""
        return self.frame.kernels

    @property
    def bounds(self) -> tuple[Any, Any]:
        """`low` and `high` as arrays, for the compiled kernels."""
        return self.low.numpy(), self.high.numpy()

    def columns(self, start: int, stop: int) -> Tensor:
        """`[stop - start, w]` columns of each row's class; past its end, the row itself.

        On a CPU `w` is the size of the largest class among these rows, elsewhere of all.
        """
        last = stop - 1
        width = int(self.high[last] - self.low[last]) if on_host(self.low) else self.width
        column = self.low[start:stop, None] + torch.arange(width, device=self.low.device)
        own = torch.arange(start, stop, device=self.low.device)[:, None]
        return torch.where(column < self.high[start:stop, None], column, own)

    def distances(self, dtype: torch.dtype) -> Tensor:
        """Table of the distances inside the classes, -inf where an entry is not real."""
        rows = self.wide
        table = torch.full((len(rows), self.width), -torch.inf, dtype=dtype, device=rows.device)
        compiled = self.compiled
        if compiled is not None:
            compiled.class_distances(rows.numpy(), *self.bounds, table.numpy())
            return table
        for start, stop, column in self._parts():
            gap = rows[column].sub_(rows[start:stop, None])
            table[start:stop, : column.shape[1]] = squared_norms(gap).sqrt_().to(dtype)
        return table.masked_fill_(~self.real, -torch.inf)

    def gradient(self, weight: Tensor, distance: Tensor) -> Tensor:
        """Gradient of Σ weight · distance over a table; a pair at distance 0 adds 0."""
        rows, result = self.wide, torch.zeros_like(self.wide)
        compiled = self.compiled
        if compiled is not None:
            tables = (weight.numpy(), distance.numpy(), result.numpy())
            compiled.class_gradient(rows.numpy(), *self.bounds, *tables)
            return result
        slope = torch.where(self.real & (distance > 0), weight / distance, 0.0).to(rows.dtype)
        member = torch.arange(len(rows), device=rows.device) - self.low
        for start, stop, column in self._parts():
            # Pair (i, j) pulls on i with the slope of (i, j) and with that of (j, i).
            both = slope[start:stop, : column.shape[1]] + slope[column, member[start:stop, None]]
            both.masked_fill_(~self.real[start:stop, : column.shape[1]], 0.0)
            gap = rows[column].sub_(rows[start:stop, None])
            result[start:stop] = torch.bmm(both[:, None], gap)[:, 0].neg_()
        return result

    def in_given_order(self, gradient: Tensor) -> Tensor:
        """Rows of a gradient back where the batch has them."""
        return torch.empty_like(gradient).index_copy_(0, self.order, gradient)

    def _parts(self) -> Iterator[tuple[int, int, Tensor]]:
        """Row ranges, a few at a time, with the columns of their classes."""
        n, dim = self.wide.shape
        chunk = max(1, _ELEMENTS // (self.width * dim))
        for start in range(0, n, chunk):
            stop = min(n, start + chunk)
            yield start, stop, self.columns(start, stop)


def pair_forces(
    classes: ByClass, fill: Callable[[int, Tensor, Tensor], None], scale: float = 1.0
) -> Tensor:
    """Gradient of Σ a_ij |x_i - x_j|² / 2, in class order, a block of anchors at a time.

    `fill(start, block, direct)` has a block of short squares times `scale`, of the anchors from
    `start` on, on a device of whole ones, and makes it a_ij. What needs more digits it leaves out
    there, and adds to `direct`.
    """
    frame, n = classes.frame, len(classes.frame)
    forces, direct = Forces(frame.block(slice(None))), torch.zeros_like(classes.wide)
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        block = forces.block(start, stop)
        if on_host(block):
            short_squares(frame, slice(start, stop), out=block, scale=scale)
        else:
            whole = exact_squares(frame, slice(start, stop), frame, slice(None))
            torch.mul(whole, scale, out=block)
        fill(start, block, direct)
        forces.add(start, stop)
    return direct.add_(forces.gradient())


def cross_class(classes: ByClass, weigh: Callable[[int, int, Tensor], Tensor]) -> Tensor:
    """Gradient of Σ w_ij |x_i - x_j| over the pairs of different classes, in class order.

    `weigh(start, stop, distances)` returns w for the anchors `start` to `stop`, 0 where a distance
    is `FAR`. It may keep what it returns, but must not keep or change the distances.
    """
    rows, norm = classes.wide, classes.frame.norms

    def fill(start: int, square: Tensor, direct: Tensor) -> None:
        stop = start + len(square)
        own = norm[start:stop, None]
        if on_host(square):
            square.add_(own)
        square.scatter_(1, classes.columns(start, stop), FAR * FAR)
        close = close_pairs(square, own, norm)
        distance = square.clamp_(min=_TINY).sqrt_()
        if close is not None:
            i, j = close[0] + start, close[1]
            distance[close] = lengths(rows, i, j).to(norm.dtype)
        slope = weigh(start, stop, distance)
        if close is not None:
            charge = torch.where(distance[close] > 0, slope[close] / distance[close], 0.0)
            pull_apart(direct, rows, i, j, charge.to(rows.dtype))
            slope[close] = 0.0
            distance[close] = FAR
        torch.div(slope, distance, out=distance)

    return pair_forces(classes, fill)


def dot(weight: Tensor, distance: Tensor) -> Tensor:
    """Σ weight · distance of a block, summed in float64."""
    total: Tensor = torch.linalg.vecdot(weight, distance).sum(dtype=torch.float64)
    return total


def pair_softmax(
    classes: ByClass, unit: float, scale: float, charge: Charge, slack: float | None = None
) -> tuple[Tensor, Tensor]:
    """Sum of the rows' losses over all pairs, and its gradient by rows of length 1.

    Logits are `scale` (s - 1) of the cosines s, so that they keep their digits where s is close to
    1; `unit` is the length of 1 in the frame's coordinates. With `slack`, negatives count only
    above the least logit of the positives less that.
    """
    rows, norm, real = classes.wide, classes.frame.norms, classes.real
    slope = -0.5 * scale * unit**2  # scale · (s_ij - 1) = slope |z_i - z_j|²
    level = slope * norm[:, None] * on_host(norm)
    distance = torch.where(real, classes.distances(norm.dtype), 0.0)
    near = torch.where(real, slope * distance.square(), NONE)
    bound = None
    if slack is not None:
        bound = near.masked_fill(~real, torch.inf).amin(1, keepdim=True) - slack - level
    pull, losses = torch.zeros_like(near), norm.new_zeros(len(norm), 1)

    def fill(start: int, weight: Tensor, direct: Tensor) -> None:
        here = slice(start, start + len(weight))
        weight.scatter_(1, classes.columns(here.start, here.stop), NONE)
        highest = weight.amax(1, keepdim=True)
        close = close_exponents(weight, highest, norm[here, None], norm, slope)
        some = highest > (NONE / 2 if bound is None else bound[here].clamp(min=NONE / 2))
        inside = None if bound is None else (weight > bound[here]).to(weight.dtype)
        weight.sub_(torch.where(some, highest, 0.0)).clamp_(min=SMALLEST).exp_()
        if inside is not None:
            weight.mul_(inside)
        total = weight.sum(1, keepdim=True)
        far = torch.where(some, total.log() + highest + level[here], NONE)
        losses[here], pull[here], push = charge(near[here], far, highest + level[here])
        weight.mul_(torch.where(some, push / total, 0.0))
        if close is not None:
            take_apart(direct, rows, start, weight, close)

    # Rows are unit · x and ds/dy_i = y_j - y_i, so both products are of unit · x.
    forces = pair_forces(classes, fill, slope)
    gradient = classes.gradient(pull * distance, distance).add_(forces).mul_(-unit * scale)
    return losses.sum(dtype=torch.float64), classes.in_given_order(gradient)
