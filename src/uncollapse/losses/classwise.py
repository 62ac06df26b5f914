"""Pairs inside the classes of a batch, and pairs across them: distances and gradients.

Two tight classes far apart leave no digits of a within-class distance in the batch's own frame.
Differences of float64 rows, or float64 products about each class's own centre, keep them. Across
classes one product of the batch's rows will do; the few pairs that are close beside the spread of
the batch are measured, and pulled on, by differences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from uncollapse.distances.frame import (
    Batch,
    Frame,
    on_host,
    pairwise_distances,
    short_squares,
    squared_norms,
)
from uncollapse.distances.tiles import (
    BLOCK,
    CLOSE,
    Forces,
    close_exponents,
    close_pairs,
    lengths,
    pull_apart,
    take_apart,
)
from uncollapse.losses.on_graph import SMALLEST

Charge = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]  # as `PairSoftmax.charge`

NONE = -1e30  # exponent of what is not there
FAR = 1e18  # stands for the distance of what is not a negative
_TINY = 1e-36  # square roots of exact zeros are slow
_SMALL = 32  # classes up to this size by differences, larger ones by products
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
    small: int  # rows of small classes, which come first

    @classmethod
    def of(cls, batch: Batch) -> ByClass:
        """Put a batch without references in class order."""
        classes, n = batch.classes, batch.count
        size = classes.high - classes.low
        # Row after row of `order` is class after class; moved so that small classes come first.
        key = (size * n + classes.low)[classes.order]
        sorted_key, place = torch.sort(key, stable=True)
        order, width = classes.order[place], classes.most + 1
        low = torch.searchsorted(sorted_key, sorted_key)
        high = low + size[order]
        small = int((size <= _SMALL).sum()) if on_host(order) and width > _SMALL else n
        return cls(order, batch.frame.at(order), low, high, width, small)

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
        """The compiled kernels, where they may and can be used."""
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
        for start, stop, column in self._small():
            gap = rows[column].sub_(rows[start:stop, None])
            table[start:stop, : column.shape[1]] = squared_norms(gap).sqrt_().to(dtype)
        for low, high in self._large():
            table[low:high, : high - low] = pairwise_distances(rows[low:high]).to(dtype)
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
        place = torch.arange(len(rows), device=rows.device) - self.low
        for start, stop, column in self._small():
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

    def in_given_order(self, gradient: Tensor) -> Tensor:
        """Rows of a gradient back where the batch has them."""
        return torch.empty_like(gradient).index_copy_(0, self.order, gradient)

    def _small(self) -> Iterator[tuple[int, int, Tensor]]:
        """Row ranges of the small classes, a few at a time, with the columns of their classes."""
        widest = self.width if self.small == len(self.wide) else _SMALL
        chunk = max(1, _ELEMENTS // (widest * self.wide.shape[1]))
        for start in range(0, self.small, chunk):
            stop = min(self.small, start + chunk)
            yield start, stop, self.columns(start, stop)

    def _large(self) -> Iterator[tuple[int, int]]:
        """Column ranges of the large classes."""
        low = self.small
        while low < len(self.wide):
            high = int(self.high[low])
            yield low, high
            low = high


def cross_class(classes: ByClass, weigh: Callable[[int, int, Tensor], Tensor]) -> Tensor:
    """Gradient of Σ w_ij |x_i - x_j| over the pairs of different classes, in class order.

    `weigh(start, stop, distances)` returns w for the anchors `start` to `stop`, 0 where a distance
    is `FAR`. It may keep what it returns, but must not keep or change the distances.
    """
    frame, rows, norm = classes.frame, classes.wide, classes.frame.norms
    n = len(norm)
    forces, direct = Forces(frame.block(slice(None))), torch.zeros_like(rows)
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        own = norm[start:stop, None]
        square = short_squares(frame, slice(start, stop), out=forces.block(start, stop))
        square.add_(own).scatter_(1, classes.columns(start, stop), FAR * FAR)
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
        forces.add(start, stop)
    return direct.add_(forces.gradient())


def dot(weight: Tensor, distance: Tensor) -> Tensor:
    """Σ weight · distance of a block, summed in float64."""
    total: Tensor = torch.linalg.vecdot(weight, distance).sum(dtype=torch.float64)
    return total


def pair_softmax(batch: Batch, temperature: float, charge: Charge) -> tuple[Tensor, Tensor]:
    """Sum of the rows' losses over all pairs, and its gradient by the normalised rows.

    Logits are (s - 1) / T of the cosines s, so that they keep their digits where s is close to 1.
    """
    classes, unit = ByClass.of(batch), 1 / batch.frame.zoom
    frame, rows, norm = classes.frame, classes.wide, classes.frame.norms
    n, real = len(norm), classes.real
    slope = -0.5 * unit**2 / temperature  # (s_ij - 1) / T = slope |z_i - z_j|²
    level = slope * norm[:, None]
    distance = torch.where(real, classes.distances(norm.dtype), 0.0)
    near = torch.where(real, slope * distance.square(), NONE)
    pull, losses = torch.zeros_like(near), norm.new_zeros(n, 1)
    forces, direct = Forces(frame.block(slice(None))), torch.zeros_like(rows)
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        here = slice(start, stop)
        weight = forces.block(start, stop)
        short_squares(frame, here, out=weight, scale=slope)
        weight.scatter_(1, classes.columns(start, stop), NONE)
        highest = weight.amax(1, keepdim=True)
        close = close_exponents(weight, highest, norm[here, None], norm, slope)
        some = highest > NONE / 2
        weight.sub_(torch.where(some, highest, 0.0)).clamp_(min=SMALLEST).exp_()
        total = weight.sum(1, keepdim=True)
        far = torch.where(some, total.log() + highest + level[here], NONE)
        losses[here], pull[here], push = charge(near[here], far)
        weight.mul_(torch.where(some, push / total, 0.0))
        if close is not None:
            take_apart(direct, rows, start, weight, close)
        forces.add(start, stop)
    # Rows are unit · x and ds/dy_i = y_j - y_i, so both products are of unit · x.
    gradient = classes.gradient(pull * distance, distance).add_(direct).add_(forces.gradient())
    gradient = classes.in_given_order(gradient.mul_(-unit / temperature))
    return losses.sum(dtype=torch.float64), gradient


class Rules(NamedTuple):
    """Which pairs count: `"all"`, `"multi_similarity"`, and `"easy"` for positives.

    With `both`, an anchor left without a pair of either kind does not count at all, as when its
    pairs come from triplets.
    """

    positives: str = "all"
    negatives: str = "all"
    epsilon: float = 0.1
    both: bool = False


class Weights(NamedTuple):
    """The loss's own numbers."""

    alpha: float = 2.0
    beta: float = 50.0
    base: float = 1.0


def multi_similarity(
    classes: ByClass, unit: float, weights: Weights, rules: Rules
) -> tuple[Tensor, Tensor]:
    """Mean over the rows of Wang et al. 2019 (14), and its gradient by the rows on the sphere.

    The frame is that of normalised embeddings, whose cosines are s = 1 - d²/2; `unit` is the length
    of 1 in its coordinates.
    """
    positive = classes.distances(classes.frame.norms.dtype)
    batch = _Batch(classes, positive, torch.zeros_like(positive), unit, weights, rules)
    total, push = (_charge if classes.compiled is None else _charge_compiled)(batch)
    # Rows are unit · x and ds/dy_i = y_j - y_i, so both products are of unit · x.
    distance = torch.where(classes.real, positive, 0.0)
    gradient = classes.gradient(batch.pull * distance, distance).sub_(push)
    n = len(positive)
    return total / n, classes.in_given_order(gradient.mul_(unit / n))


class _Batch(NamedTuple):
    """`pull` is written: minus the derivatives by the positives' cosines."""

    classes: ByClass
    positive: Tensor
    pull: Tensor
    unit: float
    weights: Weights
    rules: Rules

    @property
    def slope(self) -> float:
        """β(s_ij - λ) = level_i + slope · (short square of i and j)."""
        return -0.5 * self.weights.beta * self.unit**2

    @property
    def level(self) -> Tensor:
        """What each row's short squares lack, as an exponent."""
        norms = self.classes.frame.norms
        return norms * self.slope + self.weights.beta * (1.0 - self.weights.base)


def _charge_compiled(batch: _Batch) -> tuple[Tensor, Tensor]:
    """Sum of the losses, and the gradient of Σ ∂L/∂s |x_i - x_j|² / 2 over the negatives."""
    classes, rules, frame = batch.classes, batch.rules, batch.classes.frame
    compiled, n, norm = classes.compiled, len(frame), frame.norms
    forces, direct = Forces(frame.block(slice(None))), torch.zeros_like(classes.wide)
    charge, shift = torch.zeros(2, n, dtype=torch.float64)
    close = torch.zeros(n, dtype=torch.bool)
    share = CLOSE[norm.dtype]
    chosen = {"all": 0, "easy": 1, "multi_similarity": 2}[rules.positives]
    before = (
        *classes.bounds,
        *(x.numpy() for x in (norm, batch.level, batch.positive)),
        batch.unit,
        (*batch.weights, rules.epsilon, share),
        (chosen, rules.negatives == "multi_similarity", rules.both),
        *(x.numpy() for x in (batch.pull, charge, shift, close)),
    )
    beta = batch.weights.beta
    after = (beta, share, *(x.numpy() for x in (shift, close, charge, direct)))
    for start in range(0, n, BLOCK):
        here = slice(start, min(n, start + BLOCK))
        weight = forces.block(here.start, here.stop)
        short_squares(frame, here, out=weight, scale=batch.slope)
        compiled.similarity_before(weight.numpy(), start, *before)
        weight.exp_()
        compiled.similarity_after(weight.numpy(), start, norm.numpy(), classes.wide.numpy(), *after)
        forces.add(here.start, here.stop)
    return charge.sum(), direct.add_(forces.gradient())


def _charge(batch: _Batch) -> tuple[Tensor, Tensor]:
    """The same in torch, on any device."""
    classes, rules, (alpha, beta, base) = batch.classes, batch.rules, batch.weights
    frame, rows, norm = classes.frame, classes.wide, classes.frame.norms
    n, level, real = len(norm), batch.level[:, None], classes.real
    near = torch.where(real, 1.0 - 0.5 * (batch.unit * batch.positive).square(), torch.inf)
    bound = beta * (near.amin(1, keepdim=True) - rules.epsilon - base)  # s_an > min s_ap - ε
    hard = rules.negatives == "multi_similarity"
    forces, direct = Forces(frame.block(slice(None))), torch.zeros_like(rows)
    mask = norm.new_empty(min(BLOCK, n), n)
    charge = norm.new_zeros(n, 1)
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        here = slice(start, stop)
        weight = forces.block(start, stop)
        short_squares(frame, here, out=weight, scale=batch.slope)
        weight.scatter_(1, classes.columns(start, stop), NONE)
        highest = weight.amax(1, keepdim=True)
        close = close_exponents(weight, highest, norm[here, None], norm, batch.slope)
        highest = highest + level[here]
        some = highest > NONE / 2
        if hard:
            some = some & (highest > bound[here])
        chosen = _positives(
            rules, batch.positive[here], near[here], real[here], highest / beta + base
        )
        if rules.both:
            chosen &= some
            some = some & chosen.any(1, keepdim=True)
        shift = torch.where(some, highest, 0.0).clamp_(min=0.0)
        inside = mask[: stop - start]
        if hard:
            torch.gt(weight, bound[here] - level[here], out=inside)
        weight.add_(torch.where(some, level[here] - shift, NONE))
        weight.clamp_(min=SMALLEST).exp_()
        if hard:
            weight.mul_(inside)
        whole = weight.sum(1, keepdim=True) + torch.exp(-shift)  # the 1 of log(1 + Σ), scaled
        loss, batch.pull[here] = _pulled(near[here], chosen, alpha, base)
        charge[here] = loss + torch.where(some, (torch.log(whole) + shift) / beta, 0.0)
        weight.mul_(torch.where(some, 1.0 / whole, 0.0))
        if close is not None:
            take_apart(direct, rows, start, weight, close)
        forces.add(start, stop)
    return charge.sum(dtype=torch.float64), direct.add_(forces.gradient())


def _positives(
    rules: Rules, distance: Tensor, near: Tensor, real: Tensor, highest: Tensor
) -> Tensor:
    """Which entries of the table of positives are charged; `highest` is the largest s_an."""
    if rules.positives == "easy":  # EPS §4.3; distances, as cosines near 1 cannot be told apart
        # Equal rows of a large class are at distances that differ in the last digit: the first.
        distance = torch.where(real, distance, torch.inf)
        least = distance.amin(1, keepdim=True) * (1 + 1e-9)
        nearest = (distance <= least).to(torch.uint8).argmax(1, keepdim=True)
        return torch.zeros_like(real).scatter_(1, nearest, True).logical_and_(real)
    if rules.positives == "multi_similarity":  # s_ap < max s_an + ε
        return real & (near < highest + rules.epsilon)
    return real.clone()


def _pulled(near: Tensor, chosen: Tensor, alpha: float, base: float) -> tuple[Tensor, Tensor]:
    """log(1 + Σ exp(-α(s - λ)))/α over the positives of each row, and minus its derivatives."""
    exponent = torch.where(chosen, -alpha * (near - base), -torch.inf)
    shift = exponent.amax(1, keepdim=True).clamp_(min=0.0)
    part = torch.exp(exponent - shift)
    whole = part.sum(1, keepdim=True) + torch.exp(-shift)
    return (torch.log(whole) + shift) / alpha, part / whole
