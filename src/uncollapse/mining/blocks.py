"""Some anchors of a batch, and their nearest and farthest rows as float64 differences choose them.

One pass over float32 products finds the winner and everybody within the rounding error of it. Where
that is more than the winner, those few are measured by differences of the given rows; where it is a
crowd (a class within a millionth of its distance) the row is done again in float64, and only what
is within the far smaller error there is measured. Ties go to the lowest index.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from uncollapse.distances.batch import Batch
from uncollapse.distances.frame import Frame, on_host
from uncollapse.distances.tiles import pairwise_distances, row_argmin, short_squares

__all__ = [
    "Block",
    "Draws",
    "Look",
    "anchor_blocks",
    "draw_pool",
    "draw_weighted",
    "kth_smallest",
    "pick",
    "uniform",
]


# Every random draw of mining: from the generator's own device, so that all devices agree.


def uniform(
    shape: int | tuple[int, ...], generator: torch.Generator | None, device: torch.device
) -> Tensor:
    """float64 numbers in [0, 1)."""
    source = torch.device("cpu") if generator is None else generator.device
    size = (shape,) if isinstance(shape, int) else shape
    drawn = torch.rand(size, generator=generator, dtype=torch.float64, device=source)
    return drawn.to(device)


def pick(allowed: Tensor, generator: torch.Generator | None) -> Tensor:
    """A uniformly random True column of each row."""
    count = allowed.sum(dim=1)
    place = (uniform(len(count), generator, count.device) * count).long()
    return (allowed.cumsum(dim=1) <= place[:, None]).sum(dim=1)


def draw_weighted(
    weights: Tensor, rows: Tensor, most: int, generator: torch.Generator | None
) -> Tensor:
    """A column for each of the ascending `rows`, with probability proportional to its weight.

    A row occurs at most `most` times. Rows whose weights are all 0 give an arbitrary column.
    """
    if len(rows) == 0:
        return rows
    total = torch.cumsum(weights, dim=1)
    draws = uniform((len(weights), most), generator, weights.device)
    column = torch.searchsorted(total, (draws * total[:, -1:]).to(total.dtype), right=True)
    # Rounding can put a draw at the very end; the last column that has a weight is then meant.
    last = torch.searchsorted(total, total[:, -1:].contiguous())
    place = torch.arange(len(rows), device=rows.device) - torch.searchsorted(rows, rows)
    return torch.minimum(column, last)[rows, place]


def draw_pool(
    most: int, own: Tensor, real: Tensor, hidden: Tensor, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """For each anchor a random `most` of the others: masks of `own` and of all candidates.

    Where it has fewer, all of them. `hidden` `[b, N]` marks what is no negative. The number of
    positives is most·(positives)/(all others), rounded up or down at random so that it is that on
    average; then at least one positive and one negative are kept. Which ones, is uniform.
    """
    device = own.device
    positives, negatives = real.sum(dim=1), (~hidden).sum(dim=1)
    size = (positives + negatives).clamp(max=most)
    share = size * positives / (positives + negatives)
    count = torch.floor(share + uniform(len(share), generator, device)).long()
    low, high = (size - negatives).clamp(min=1), torch.minimum(positives, size - 1)
    count = torch.maximum(torch.minimum(count, high), low)
    keys = uniform(tuple(own.shape), generator, device).masked_fill_(~real, torch.inf)
    mask = _smallest(keys, count)
    keys = uniform(tuple(hidden.shape), generator, device).masked_fill_(hidden, torch.inf)
    return mask, _smallest(keys, size - count)


def _smallest(keys: Tensor, count: Tensor) -> Tensor:
    """Mask of the `count[i]` smallest keys of row i."""
    return keys <= kth_smallest(keys, count)


def kth_smallest(keys: Tensor, k: Tensor) -> Tensor:
    """`[b, 1]`: the `k[i]`-th smallest key of row i, the first being 1."""
    if on_host(keys):
        last = k.numpy() - 1
        ordered = np.partition(keys.numpy(), np.unique(last), axis=1)
        return torch.from_numpy(np.take_along_axis(ordered, last[:, None], 1))
    return keys.sort(dim=1).values.gather(1, k[:, None] - 1)


_PRODUCTS = 1 << 20  # products held at a time: 4 MB of float32
_PRODUCTS_ELSEWHERE = 1 << 25
_SMALL_CLASS = 32  # up to here the distances inside a class are differences
_DOUBT = 1e-9  # relative error of a squared distance by float64 products
_CROWD = 16  # candidates of a doubtful row, on average, above which float64 products are cheaper
_INF = float("inf")
_LAST = (1 << 63) - 1


def anchor_blocks(
    batch: Batch, generator: torch.Generator | None, rows: Tensor | None = None
) -> Iterator[Block]:
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
        yield Block(batch, some, at, own[at], real[at], None, generator)


@dataclass
class Block:
    """Some anchors; `at` are the same rows, as a slice where they are one.

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
    def plain(self) -> Look:
        """The block by the distances of the batch as they are."""
        return Look(self, self.batch.frame)

    @cached_property
    def sphere(self) -> Look:
        """The block by the distances on the unit sphere."""
        return Look(self, self.batch.frame.sphere)

    @cached_property
    def every(self) -> Tensor:
        """Row numbers of the block."""
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
            hidden = self.hidden() if self.pool is None else ~self.pool
            self.valid, self.pool = draw_pool(pool, self.own, self.valid, hidden, self.generator)

    def hide(self, values: Tensor, rows: Tensor | None = None) -> None:
        """Put infinity where a negative may not be chosen, for all or for the given rows."""
        own, anchors, pool = self.own, self.anchors, self.pool
        if rows is not None:
            own, anchors = own[rows], anchors[rows]
            pool = None if pool is None else pool[rows]
        values.scatter_(1, own, _INF)
        if not self.batch.classes.apart:
            values.scatter_(1, anchors[:, None], _INF)
        if pool is not None:
            values.masked_fill_(~pool, _INF)

    def take(self, rows: Tensor) -> Block:
        """The block of `anchors[rows]`, which may repeat."""
        pool = None if self.pool is None else self.pool[rows]
        anchors = self.anchors[rows]
        mine = anchors, anchors, self.own[rows], self.valid[rows]
        return Block(self.batch, *mine, pool, self.generator)

    def at_own(self, table: Tensor, rows: Tensor, column: Tensor) -> Tensor:
        """`table[rows, column]` for a table that is `own` or goes with it."""
        if rows is self.every:
            return table.gather(1, column[:, None]).flatten()
        return table[rows, column]


class Look:
    """A block by the distances of one frame; squared, in the frame's coordinates."""

    def __init__(self, block: Block, frame: Frame) -> None:
        self.block, self.frame = block, frame
        self._products: Tensor | None = None
        self.own_products = frame.norms[:0]  # short squares to `own`, once there are products
        self._own_squares: tuple[Tensor, Tensor | None] | None = None

    @property
    def candidates(self) -> slice:
        """Rows of the frame that are candidates."""
        return slice(self.block.batch.offset, len(self.frame))

    @cached_property
    def error(self) -> Tensor:
        """`[b, 1]`: what bounds the error of a product of these anchors with any candidate."""
        band = self.frame.band
        return (band[self.block.at] + band.amax())[:, None]

    def squares(self, rows: Tensor, column: Tensor) -> Tensor:
        """Of the rows of the block to candidates `[len(rows)]` or `[len(rows), k]`, exactly."""
        anchors = self.block.anchors
        who = anchors if rows is self.block.every else anchors[rows]
        return self.frame.squares(who, column + self.block.batch.offset)

    def distances(self, rows: Tensor, column: Tensor) -> Tensor:
        """The same as the caller's distances."""
        return self.squares(rows, column).sqrt_().mul_(self.frame.unit)

    def products(self) -> Tensor:
        """Short squares, infinite where no negative may be chosen; do not change them."""
        if self._products is None:
            values = short_squares(self.frame, self.block.at, self.frame, self.candidates)
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
        own = self.frame.norms[self.block.anchors]
        gap = self.products() - (limit - own).to(own.dtype)[:, None]
        within = gap < 0
        r, c = (gap.abs_() <= self.error).nonzero(as_tuple=True)
        within[r, c] = self.squares(r, c) < limit[r]
        return within

    def own_squares(self) -> tuple[Tensor, Tensor | None]:
        """Squared distances to `own`, and what bounds their error (None: exact)."""
        if self._own_squares is None:
            block = self.block
            if block.own.shape[1] <= _SMALL_CLASS or not on_host(block.own):
                self._own_squares = self.squares(block.every, block.own), None
            else:
                self._own_squares = self._large_class_squares()
        return self._own_squares

    def own_squares_near(self, limit: Tensor) -> Tensor:
        """The same, exact wherever the order relative to `limit` `[b]` could depend on it."""
        squares, error = self.own_squares()
        if error is not None:
            self._measure(squares, (squares - limit[:, None]).abs() <= error)
        return squares

    def nearest_own(self) -> Tensor:
        """Column of the nearest valid positive."""
        return self.extreme_own(self.block.valid, farthest=False)

    def extreme_own(self, allowed: Tensor, *, farthest: bool) -> Tensor:
        """Column of the nearest or farthest allowed positive; the first of equals.

        Where the products are there anyway they decide, as far as rounding lets them.
        """
        if self._own_squares is not None or self._products is None:
            return self._extreme_exact(allowed, farthest)
        values = self.own_products
        values = (-values if farthest else values).masked_fill(~allowed, _INF)
        scan = _scan(values, self.error, None)
        column = scan.winner
        if len(scan.row) and not self.frame.collapsed:
            doubtful = torch.as_tensor(_runs(scan.row)[0])
            part = Look(self.block.take(doubtful), self.frame)
            column[doubtful] = part._extreme_exact(allowed[doubtful], farthest)
        return column

    def search(
        self,
        values: Tensor,
        rows: Tensor,
        *,
        beyond: tuple[Tensor, Tensor] | None = None,
        farthest: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Nearest column of each of the block's `rows`, if asked only `beyond` another.

        Returns `(index, found)`. `values` are the products of those rows, hidden; with `farthest`
        they are of opposite sign. `beyond` are for each row a candidate `[r]` whose distance must
        be exceeded, and the product with it; the values are then overwritten.
        """
        error = self.error if rows is self.block.every else self.error[rows]
        bound = None if beyond is None else beyond[1][:, None] - 2 * error
        scan = _scan(values, error, bound)
        if self.frame.collapsed:  # every distance is exactly 0, and none exceeds another
            return scan.winner, scan.exists if beyond is None else torch.zeros_like(scan.exists)
        if len(scan.row):
            self._decide(scan, rows, error, None if beyond is None else beyond[0], farthest)
        return scan.winner, scan.exists

    def _decide(
        self, scan: _Scan, rows: Tensor, error: Any, beyond: Any | None, farthest: bool
    ) -> None:
        """Measure what a scan left in doubt, and put its answers right in place."""
        frame, offset, anchors = self.frame, self.block.batch.offset, self.block.anchors
        anchors = anchors if rows is self.block.every else anchors[rows]
        who: Any = anchors
        norms: Any = frame.norms
        squares: Any = frame.squares
        if on_host(anchors):  # few numbers: NumPy takes a third of torch's time for them
            who, norms, squares = anchors.numpy(), norms.numpy(), frame.squares_host
            error, beyond = error.numpy(), None if beyond is None else beyond.numpy()
        doubtful, run = _runs(scan.row)
        above = None if beyond is None else squares(who[doubtful], beyond[doubtful] + offset)
        if len(scan.row) <= _CROWD * len(doubtful):
            exact = squares(who[scan.row], scan.column + offset)
            if farthest:
                exact = -exact
            elif above is not None:
                exact[exact <= above[run]] = _INF
            # Everybody else is farther than the winner's value and twice the error.
            own = norms[who[doubtful]]
            sure = scan.best[doubtful] + error[doubtful, 0] + (-own if farthest else own)
            scan.index[doubtful], least = _least(exact, run, scan.column, len(doubtful))
            unsettled = least > sure
            doubtful = doubtful[unsettled]
            above = None if above is None else above[unsettled]
        step = max(1, _PRODUCTS // 2 // self.block.batch.candidates)
        for start in range(0, len(doubtful), step):
            some = torch.as_tensor(doubtful[start : start + step])
            limits = None if above is None else torch.as_tensor(above[start : start + step])
            scan.winner[some], scan.exists[some] = self._settle(rows[some], limits, farthest)

    def _settle(self, rows: Tensor, above: Tensor | None, farthest: bool) -> tuple[Tensor, Tensor]:
        """The same search in float64, with differences where even that could mislead."""
        above = None if above is None else above[:, None]
        frame, anchors = self.frame.fine, self.block.anchors[rows]
        error = (frame.band[anchors] + frame.band.amax())[:, None]
        values = short_squares(frame, anchors, frame, self.candidates)
        values += frame.norms[anchors][:, None]
        sign = -1.0 if farthest else 1.0
        values.mul_(sign)
        self.block.hide(values, rows)

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

    def _extreme_exact(self, allowed: Tensor, farthest: bool) -> Tensor:
        squares, error = self.own_squares()
        sign = -1.0 if farthest else 1.0
        values = (sign * squares).masked_fill_(~allowed, _INF)
        if error is not None:
            best = values.amin(dim=1, keepdim=True)
            self._measure(squares, (values <= best + 2 * error) & allowed)
            values = (sign * squares).masked_fill_(~allowed, _INF)
        return row_argmin(values)

    def _measure(self, squares: Tensor, near: Tensor) -> None:
        """Replace the marked squared distances to `own` by exact ones."""
        r, c = near.nonzero(as_tuple=True)
        squares[r, c] = self.squares(r, self.block.own[r, c])

    def _large_class_squares(self) -> tuple[Tensor, Tensor]:
        """Squared distances to `own` by products about each class's own centre, and their error.

        About the batch's centre a tight class has no digits.
        """
        block, classes = self.block, self.block.batch.classes
        squares = self.frame.centre.new_full(block.own.shape, _INF)
        low, run = torch.unique(classes.low[block.anchors], return_inverse=True)
        for number, first in enumerate(low.tolist()):
            rows = (run == number).nonzero().flatten()
            last = int(classes.high[block.anchors[rows[0]]])
            members = classes.order[first:last] + block.batch.offset
            mine, theirs = self.frame.exact(block.anchors[rows]), self.frame.exact(members)
            full = pairwise_distances(mine, theirs, squared=True)
            where = torch.searchsorted(members, block.own[rows] + block.batch.offset)
            width = len(members) - int(not classes.apart)
            squares[rows, :width] = full.gather(1, where[:, :width].clamp(max=len(members) - 1))
        return squares, squares * _DOUBT


@dataclass
class _Scan:
    """Each row's lowest value, and what rounding leaves in doubt; arrays on a host.

    `index` is where it is, `found` whether there is one, `best` what it is. `row` and `column`
    list, for the rows in which another one could have won, all entries that could.
    """

    index: Any
    found: Any
    best: Any
    row: Any
    column: Any

    @property
    def winner(self) -> Tensor:
        """`index` as a tensor, which shares its memory."""
        return torch.as_tensor(self.index)

    @property
    def exists(self) -> Tensor:
        """`found` as a tensor, which shares its memory."""
        return torch.as_tensor(self.found)


def _scan(values: Tensor, error: Tensor, bound: Tensor | None) -> _Scan:
    """Scan rows of values that are off by up to `error`, and a bound on them by twice that."""
    if on_host(values):
        return _scan_host(values, error, bound)
    if bound is not None:
        values = values.masked_fill(values < bound, _INF)
    index = values.argmin(dim=1, keepdim=True)
    best = values.gather(1, index)
    found = best < _INF
    near = values <= best + 2 * error
    doubt = near.sum(dim=1, keepdim=True) > 1
    if bound is not None:
        doubt |= best <= bound + 4 * error
    row, column = (near & doubt & found).nonzero(as_tuple=True)
    return _Scan(index.flatten(), found.flatten(), best.flatten(), row, column)


def _scan_host(values: Tensor, error: Tensor, bound: Tensor | None) -> _Scan:
    """The same with NumPy, whose argmin takes a tenth of the time of torch's."""
    v, band, row = values.numpy(), 2 * error.numpy()[:, 0], np.arange(len(values))
    if bound is None:
        keys, last = v, np.inf
    else:
        # Above the bound a difference is a positive float, whose bits order as unsigned integers;
        # below it the sign bit makes it larger than any of them: no masking pass is needed.
        low = bound.numpy()
        np.subtract(v, low, out=v)
        keys = v.view(np.uint32 if v.itemsize == 4 else np.uint64)
        last = np.iinfo(keys.dtype).max
    index = keys.argmin(axis=1)
    best, lowest = v[row, index], keys[row, index]
    keys[row, index] = last
    second = keys.min(axis=1)  # decides most rows
    keys[row, index] = lowest
    if bound is None:
        found, limit = best < np.inf, best + band
        doubt = found & (second <= limit)
    else:
        found = (best >= 0) & (best < np.inf)
        limit = np.where(found, best + band, 0).astype(v.dtype).view(keys.dtype)
        doubt = found & ((second <= limit) | (best <= 2 * band))
        best = best + low[:, 0]
    doubtful = np.flatnonzero(doubt)
    if len(doubtful) == 0:
        return _Scan(index, found, best, doubtful, doubtful)
    run, column = (keys[doubtful] <= limit[doubtful, None]).nonzero()
    return _Scan(index, found, best, doubtful[run], column)


def _runs(row: Any) -> tuple[Any, Any]:
    """The different values of an ascending list, and which of them each entry is."""
    if isinstance(row, Tensor):
        value, run = torch.unique_consecutive(row, return_inverse=True)
        return value, run
    first = np.empty(len(row), np.bool_)
    first[:1] = True
    np.not_equal(row[1:], row[:-1], out=first[1:])
    return row[first], first.cumsum() - 1


def _least(exact: Any, run: Any, column: Any, runs: int) -> tuple[Any, Any]:
    """Column of the least value of each run (the first of equals, as columns ascend), and it."""
    if not isinstance(exact, Tensor):
        start = run.searchsorted(np.arange(runs))
        low = np.minimum.reduceat(exact, start)
        return np.minimum.reduceat(np.where(exact == low[run], column, _LAST), start), low
    least = exact.new_full((runs,), _INF).scatter_reduce_(0, run, exact, "amin")
    first = torch.where(exact == least[run], column, _LAST)
    winner = torch.full_like(least, _LAST, dtype=torch.int64)
    return winner.scatter_reduce_(0, run, first, "amin"), least


# Modules that draw at random: the generator is part of their state.


class Draws(nn.Module):
    """A module with a `generator`, or None for torch's default one; a checkpoint keeps its state.

    >>> class Coin(Draws):
    ...     generator = torch.Generator().manual_seed(0)
    >>> coin = Coin()
    >>> state = coin.state_dict()
    >>> first = torch.rand(1, generator=coin.generator)
    >>> _ = coin.load_state_dict(state)
    >>> torch.equal(first, torch.rand(1, generator=coin.generator))
    True
    """

    generator: torch.Generator | None

    def get_extra_state(self) -> Tensor:
        """State of the generator, so that a checkpoint of the loss goes on with the same draws."""
        if self.generator is None:
            return torch.empty(0, dtype=torch.uint8)
        return self.generator.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        """Put the generator back; a state without one leaves it."""
        if self.generator is not None and len(state):
            self.generator.set_state(state)
