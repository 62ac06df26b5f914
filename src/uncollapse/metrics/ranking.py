"""Exact ranks of every query's positives: count the negatives nearer than each, tile by tile.

A tile of squared distances comes from one product, in float32; what its error bound leaves open is
settled by float64 differences. In torch on any device, compiled on a CPU where numba is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import count, pairwise
from threading import local
from types import ModuleType
from typing import NamedTuple

import numpy as np
import torch
from pydantic import ByteSize, TypeAdapter, ValidationError
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, class_ids, points
from uncollapse._base.check import InputError, check_bool, check_int
from uncollapse._base.extras import compiled
from uncollapse._base.progress import ProgressOption, progress_reporter
from uncollapse.distances import (
    Frame,
    exact_squares,
    on_host,
    screen_dtype,
    short_squares,
    squared_norms,
)

QUERIES = 5_000  # rows that search, sampled from more, in all commands, pages and `diagnose`
BEYOND = np.iinfo(np.int32).max  # rank of a positive past its query's limit
TIES = ("pessimistic", "optimistic")
TILE = 640  # rows and columns: one float32 tile stays near the cores
# Squared distances that differ by less than this share are equal: float64 sums have that error.
_TIE = 1e-12
# Rows scaled to norm 1 are themselves rounded: distances closer than this are equal then.
_UNIT_TIE = 4e-15
_OWN_ELEMENTS = 1 << 20  # distances to positives held at a time
_SHARED_FROM = 1 << 14  # distances to positives from which threads share them
_PRODUCTS = 128  # positives of a query from which a product measures them
_BYTES_PER_POSITIVE = 40  # threshold, count, rank and their temporaries
_BYTES_PER_ROW = 200  # indices, norms, bands, state and results, for a query or gallery row
_MEMORY = 1 << 27  # what is used where it suffices and no other bound is given
_TOGETHER = 1 << 19  # positives that are ranked together, at most: 20 MB
_FEW = 1 << 13  # rows up to which the host ranks those of a device
_BYTES = TypeAdapter(ByteSize)

Worker = Callable[[int, range], None]  # does the tiles of a row and some columns
Tick = Callable[[], object]
RankBlock = tuple[int, int, Array, Array]  # low, high, start, ranks: see `positive_ranks`
# Compares the rows, the first of which is query a, with these columns of the gallery and counts for
# the rows; if asked to, for the columns as queries too.
Counter = Callable[[Frame, int, slice, bool], None]


def sample_queries(n: int, most: int | None = QUERIES, seed: int = 0) -> Array:
    """Rows that stand for n: all, or `most` drawn from them, each equally likely; ascending.

    Always the same rows for the same numbers; all with None.

    >>> sample_queries(4).tolist(), len(sample_queries(9000))
    ([0, 1, 2, 3], 5000)
    """
    if most is None or n <= check_int("sample", most, 2):
        return np.arange(n)
    rng = np.random.default_rng(check_int("seed", seed, 0))
    return np.sort(rng.choice(n, most, replace=False))


@dataclass(frozen=True)
class Comparison:
    """Which queries are compared with which gallery rows, both in the order of their classes.

    Positions are indices into the two orders. Query position q's own class is gallery positions
    `own_low[q] : own_high[q]`; those whose skip code differs from the query's are its `counts[q]`
    positives, the others are ignored; everything outside is a negative. Ranks are exact below
    `limit[q]`. `gallery is None`: the query set. With `most`, `counts` are of the nearest positives
    alone, at most so many; a query then skips one gallery row at most.
    """

    queries: Tensor
    query_order: Array
    gallery: Tensor | None
    gallery_order: Array
    own_low: Array
    own_high: Array
    query_skip: Array
    gallery_skip: Array
    counts: Array
    limit: Array
    most: int | None = None

    @classmethod
    def of(
        cls,
        queries: Tensor,
        gallery: Tensor | None,
        ids: tuple[Array, Array],
        skip: tuple[Array, Array],
        depth: int,
        most: int | None = None,
    ) -> Comparison:
        """Positives are the gallery rows of the same id and another skip code.

        `ids` and `skip` are those of the queries and of the gallery. Ranks need not be exact from
        `depth` on, or from the number of positives on where that is larger.
        """
        query_order, gallery_order = (np.argsort(side, kind="stable") for side in ids)
        q, g = ids[0][query_order], ids[1][gallery_order]
        own_low, own_high = np.searchsorted(g, q, side="left"), np.searchsorted(g, q, side="right")
        codes, code = np.unique(np.concatenate(skip), return_inverse=True)
        query_skip, gallery_skip = code[: len(q)][query_order], code[len(q) :][gallery_order]
        pairs, own = np.sort(g * len(codes) + gallery_skip), q * len(codes) + query_skip
        skipped = np.searchsorted(pairs, own, side="right") - np.searchsorted(pairs, own)
        counts = own_high - own_low - skipped
        limit = np.minimum(np.maximum(counts, depth), BEYOND).astype(np.int64)
        if most is not None:
            counts = np.minimum(counts, most)
        return cls(
            queries, query_order, gallery, gallery_order, own_low, own_high, query_skip,
            gallery_skip, counts, limit, most,
        )  # fmt: skip


def two_sets(queries: ArrayLike, gallery: ArrayLike) -> tuple[Tensor, Tensor]:
    """Both sets, checked and detached, with one dtype and width, on one device with float64."""
    x, y = ranked_points(queries, "queries"), ranked_points(gallery, "gallery")
    if x.shape[1] != y.shape[1]:
        raise InputError("gallery", f"{y.shape[1]} columns", f"{x.shape[1]} as in queries")
    dtype = torch.promote_types(x.dtype, y.dtype)
    device = y.device if x.device.type == "cpu" else x.device
    return x.to(device, dtype), y.to(device, dtype)


def ranked_points(x: ArrayLike, name: str, min_rows: int = 1) -> Tensor:
    """One set, checked, detached and contiguous, on a device with float64; a small one on the CPU.

    There a ranking of few rows is done before a device has answered what each block asks.
    """
    small = isinstance(x, Tensor) and x.ndim > 0 and (len(x) <= _FEW or x.device.type == "mps")
    if isinstance(x, Tensor) and small and not x.is_meta:
        x = x.cpu()
    return points(x, name, min_rows=min_rows).detach().contiguous()


def row_numbers(values: ArrayLike, name: str, size: int, columns: int | None = None) -> Array:
    """Row numbers below `size` as int64, `[N]` or `[N, columns]`; `InputError` for others."""
    array = np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
    shape = (array.size,) if columns is None else (array.size // columns, columns)
    if not array.size or array.shape != shape or array.dtype.kind not in "iu":
        letters = "[N]" if columns is None else f"[N, {columns}]"
        given = f"{array.dtype} of shape {array.shape}"
        raise InputError(name, given, f"row numbers, at least one, of shape {letters}")
    if array.min() < 0 or array.max() >= size:
        given = f"{array.min()} to {array.max()}"
        raise InputError(name, given, f"row numbers from 0 to {size - 1}")
    return array.astype(np.int64)


def joint_ids(
    first: ArrayLike, n: int, second: ArrayLike, m: int, names: tuple[str, str]
) -> tuple[Array, Array]:
    """Class numbers of two label lists over their common classes; nothing is cast to float."""
    ids_a, classes_a = class_ids(first, n, names[0])
    ids_b, classes_b = class_ids(second, m, names[1])
    both = [classes.astype(object) for classes in (classes_a, classes_b)]
    try:
        number = np.unique(np.concatenate(both), return_inverse=True)[1]
    except TypeError:  # words and numbers have no order
        given = f"{classes_a.dtype} and {classes_b.dtype}"
        raise InputError(names[1], given, f"labels of the same kind as {names[0]}") from None
    return number[: len(classes_a)][ids_a], number[len(classes_a) :][ids_b]


@dataclass(frozen=True, eq=False)
class RankedSet:
    """One set of points in the order of the ranking; positions are rows of the `frame`.

    `twin[i]` is equal for two positions only if their rows are equal.
    """

    frame: Frame
    twin: Tensor


def ranked_sets(task: Comparison, *, normalize: bool, resident: bool) -> list[RankedSet]:
    """The one or two sets of a comparison in its order, with one common centre and scale.

    `resident` keeps the narrow copy of all points; otherwise tiles are converted as needed.
    """
    rows, orders = [task.queries], [task.query_order]
    if task.gallery is not None:
        rows, orders = [*rows, task.gallery], [*orders, task.gallery_order]
    if check_bool("normalize", normalize):
        check_directions(*rows)
    device = task.queries.device
    placed = [torch.from_numpy(order).to(device) for order in orders]
    frames = Frame.of_sets(
        rows, normalize=normalize, dtype=screen_dtype(), resident=resident, orders=placed
    )
    return [
        RankedSet(frame, torch.from_numpy(twin[order] * (not frame.collapsed)).to(device))
        for frame, order, twin in zip(frames, orders, equal_rows(*rows), strict=True)
    ]


def check_directions(*sets: Tensor, names: Sequence[str] = ("queries", "gallery")) -> None:
    """Raise `InputError` for the first row of zeros, which has no direction."""
    for rows, name in zip(sets, names, strict=False):
        has_direction = rows.any(dim=1)
        if not bool(has_direction.all()):
            row = int(has_direction.int().argmin())
            raise InputError(name, f"only zeros in row {row}", "rows with a norm above 0")


def equal_rows(*sets: Tensor) -> list[Array]:
    """One number per row of each set; two rows of any sets share it only if they are equal.

    >>> numbers = equal_rows(torch.tensor([[1.0], [2.0], [1.0]]))[0]
    >>> bool(numbers[0] == numbers[2]), bool(numbers[0] == numbers[1])
    (True, False)
    """
    words = [rows.cpu().contiguous().view(torch.uint8).numpy() for rows in sets]
    digests = (blake2b(row, digest_size=16).digest() for rows in words for row in rows)
    ends = np.cumsum([len(rows) for rows in words])
    keys = np.fromiter(digests, "V16", ends[-1])
    return np.split(np.unique(keys, return_inverse=True)[1], ends[:-1])


def tie_thresholds(squares: Tensor, zoom: float, *, normalize: bool, ties: str) -> Tensor:
    """Turn squared distances of positives into thresholds: negatives up to them come first.

    In place; `zoom` belongs to the frame of the distances.
    """
    sign = 1 if ties == "pessimistic" else -1
    if normalize:
        squares.sqrt_().add_(sign * _UNIT_TIE * zoom).clamp_(min=0).square_()
    squares.mul_(1 + sign * _TIE)
    # Optimistic at distance 0, nothing is nearer: no squared distance is at most -1.
    return squares if sign > 0 else squares.masked_fill_(squares == 0, -1.0)


@dataclass(frozen=True)
class RankCounts:
    """Queries that are ranked together, and the negatives counted for them so far.

    Query q's positives are entries `start[q] : start[q + 1]` of `threshold`, ascending: a negative
    precedes positive k if its squared distance is at most `threshold[start[q] + k]`. `hist` counts
    each negative at the first positive it precedes. Positives after `live[q]` have a rank of at
    least `limit[q]` and are no longer followed. `sure` and `cap` are the first and the last live
    threshold, moved outwards by their rounding; `fresh` counts what came since `live` was set.
    """

    sure: Tensor
    cap: Tensor
    live: Tensor
    start: Tensor
    threshold: Tensor
    hist: Tensor
    fresh: Tensor
    limit: Tensor

    def ranks(self) -> Array:
        """Rank of each positive: its index plus the negatives before it, or `BEYOND`."""
        start, live = self.start.cpu().numpy(), self.live.cpu().numpy()
        counts = np.diff(start)
        matched = counts > 0
        first, last = start[:-1][matched], (start[:-1] + live)[matched]
        ranks = np.cumsum(self.hist.cpu().numpy(), dtype=np.int64)
        entry = np.arange(len(ranks))
        ranks += entry
        before = np.where(first > 0, ranks[first - 1] + 1, 0)
        ranks -= np.repeat(before, counts[matched])
        ranks[entry > np.repeat(last, counts[matched])] = BEYOND
        return ranks


def _start_counts(
    task: Comparison, scan: Scan, low: int, high: int, to_threshold: Callable[[Tensor], Tensor]
) -> RankCounts:
    """Counts of the queries [low, high) with their thresholds, before any tile."""
    device, dtype = scan.x.frame.norms.device, scan.x.frame.norms.dtype
    counts = torch.from_numpy(task.counts[low:high]).to(device)
    start = torch.zeros(high - low + 1, dtype=torch.int64, device=device)
    torch.cumsum(counts, 0, out=start[1:])
    squares = torch.empty(int(start[-1]), dtype=torch.float64, device=device)
    if task.most is None:
        scan.own_squares(low, high, start, squares)
    else:
        _nearest_own(task, scan, low, high, start, squares)
    threshold = to_threshold(squares)
    live, matched = counts - 1, counts > 0
    first, last = start[:-1][matched], (start[:-1] + live)[matched]
    sure = torch.full((high - low,), -torch.inf, dtype=dtype, device=device)
    cap = sure.clone()
    sure[matched] = (threshold[first] * (1 - 1e-6)).to(dtype)
    cap[matched] = (threshold[last] * (1 + 1e-6)).to(dtype)
    hist = torch.zeros(len(threshold), dtype=torch.int32, device=device)
    fresh = torch.zeros(high - low, dtype=torch.int32, device=device)
    limit = torch.from_numpy(task.limit[low:high]).to(device)
    return RankCounts(sure, cap, live.int(), start, threshold, hist, fresh, limit)


def _class_ranges(task: Comparison, low: int, high: int) -> Iterator[tuple[int, int, slice]]:
    """Neighbouring queries of one class, and its positions in the gallery."""
    # A query whose class is not in the gallery has an empty range where the next class begins.
    own = np.stack([task.own_low[low:high], task.own_high[low:high]])
    ends = low + np.flatnonzero((np.diff(own) != 0).any(axis=0)) + 1
    for a, b in pairwise([low, *ends.tolist(), high]):
        if task.own_low[a] < task.own_high[a]:
            yield a, b, slice(int(task.own_low[a]), int(task.own_high[a]))


def _nearest_own(
    task: Comparison, scan: Scan, low: int, high: int, start: Tensor, out: Tensor
) -> None:
    """Exact squared distances from each query of [low, high) to its nearest positives, ascending.

    Of equal rows no more than can be among them are compared.
    """
    room = (task.most or 0) + 1  # one may be skipped
    for a, b, own in _class_ranges(task, low, high):
        twin = scan.y.twin[own].cpu().numpy()
        order = np.argsort(twin, kind="stable")
        copy = np.arange(len(order)) - np.searchsorted(twin[order], twin[order])
        chosen = own.start + np.sort(order[copy < room])
        others = scan.y.frame.at(torch.from_numpy(chosen).to(out.device)).kept()
        for c in range(a, b, BLOCK):
            block = slice(c, min(c + BLOCK, b))
            rows = scan.x.frame.at(block).kept()
            (near, squares), _ = nearest_pairs(rows, others, min(room, len(chosen)))
            skipped = task.gallery_skip[chosen[near]] == task.query_skip[block, None]
            squares = np.sort(np.where(skipped, np.inf, squares), axis=1)
            kept = np.arange(squares.shape[1]) < task.counts[block, None]
            part = slice(int(start[c - low]), int(start[block.stop - low]))
            out[part] = torch.from_numpy(squares[kept]).to(out.device)


def _first_at_least(values: Tensor, low: Tensor, high: Tensor, value: Tensor) -> Tensor:
    """First index in [low, high) whose value is at least `value`, else high; element by element."""
    low, high = low.clone(), high.clone()
    for _ in range(max(int((high - low).max()), 0).bit_length() if len(low) else 0):
        going = low < high
        middle = (low + high) // 2
        reached = values[middle.clamp(max=len(values) - 1)] >= value
        high = torch.where(going & reached, middle, high)
        low = torch.where(going & ~reached, middle + 1, low)
    return low


class TorchScan:
    """Distances to positives, and counts from tiles, for one comparison."""

    def __init__(self, task: Comparison, x: RankedSet, y: RankedSet) -> None:
        self.x, self.y, self._task = x, y, task
        self._low, self._high, self._x_skip, self._y_skip = (
            torch.from_numpy(array).to(x.twin.device)
            for array in (task.own_low, task.own_high, task.query_skip, task.gallery_skip)
        )

    def own_squares(self, low: int, high: int, start: Tensor, out: Tensor) -> None:
        """Exact squared distances from each query of [low, high) to its positives, ascending."""
        for a, b, own in _class_ranges(self._task, low, high):
            step = max(1, _OWN_ELEMENTS // (own.stop - own.start))
            for c in range(a, b, step):
                e = min(c + step, b)
                square = _class_squares(self.x.frame, slice(c, e), self.y.frame, own)
                square[self._x_skip[c:e, None] == self._y_skip[own]] = torch.inf
                if on_host(square):
                    square.numpy().sort(axis=1)  # in a tenth of torch's time
                else:
                    square = square.sort(1).values
                out[int(start[c - low]) : int(start[e - low])] = square[torch.isfinite(square)]

    def counter(self, counts: RankCounts, low: int) -> Counter:
        """A function that counts one tile for these queries, which start at `low`."""
        buffer = self.x.frame.norms.new_empty(TILE * TILE)

        def count_tile(left: Frame, a: int, columns: slice, both: bool) -> None:
            rows, c, width = len(left), columns.start, columns.stop - columns.start
            tile = buffer[: rows * width].view(rows, width)
            short_squares(left, slice(None), self.y.frame, columns, out=tile)
            tile += self.x.frame.norms[a : a + rows, None]
            own_low, own_high = self._low[a : a + rows, None], self._high[a : a + rows, None]
            if int(own_low.min()) < columns.stop and int(own_high.max()) > c:
                position = torch.arange(c, columns.stop, device=tile.device)
                tile[(position >= own_low) & (position < own_high)] = torch.inf
            _count(tile, self.x, a, self.y, c, counts, a - low)
            if both:
                _count(tile.T, self.x, c, self.x, a, counts, c)

        return count_tile


def _class_squares(x: Frame, i: slice, y: Frame, j: slice) -> Tensor:
    """Squared distances of rows i to rows j, a class, right to a quarter of `_TIE` at least.

    From a product about the mean of the class; by differences where that keeps too few digits.
    """
    if not on_host(x.norms) or x.collapsed:
        return exact_squares(x, i, y, j)
    here, there = x.exact(i), y.exact(j)
    middle = there.mean(0)
    here -= middle
    there -= middle
    own, others = squared_norms(here)[:, None], squared_norms(there)
    square = torch.addmm(others, here, there.T, alpha=-2.0).add_(own)
    share = 2 * (x.dim + 16) * torch.finfo(square.dtype).eps / _TIE
    a, b = (square <= share * (own + others)).nonzero(as_tuple=True)
    square[a, b] = x.squares(a + i.start, b + j.start, y)
    return square


def _count(
    tile: Tensor, x: RankedSet, row0: int, y: RankedSet, column0: int, counts: RankCounts, q0: int
) -> None:
    """Count one tile, whose rows are queries from q0 on; own classes are at infinity."""
    rows, columns = tile.shape
    q = slice(q0, q0 + rows)
    margin = x.frame.band[row0 : row0 + rows, None] + y.frame.band[column0 : column0 + columns]
    nearer = tile + margin < counts.sure[q, None]
    open_pairs = (tile - margin <= counts.cap[q, None]).logical_and_(nearer.logical_not())
    certain = nearer.sum(1, dtype=torch.int32)
    live = counts.live[q] >= 0
    counts.hist.index_add_(0, counts.start[:-1][q][live], certain[live])
    counts.fresh[q] += certain

    i, j = open_pairs.nonzero(as_tuple=True)
    if len(i):
        # Count each such negative at the first positive it precedes.
        value, around = tile[i, j], margin[i, j]
        begin = counts.start[:-1][q][i]
        end = begin + counts.live[q][i] + 1
        entry = _first_at_least(counts.threshold, begin, end, (value - around).double())
        threshold = counts.threshold[entry.clamp(max=len(counts.threshold) - 1)]
        unsure = (entry < end) & (threshold <= (value + around).double())
        pick = unsure.nonzero().flatten()
        a, b = row0 + i[pick], column0 + j[pick]
        square = torch.zeros(len(pick), dtype=torch.float64, device=tile.device)
        apart = (x.twin[a] != y.twin[b]).nonzero().flatten()
        square[apart] = x.frame.squares(a[apart], b[apart], y.frame)
        entry[pick] = _first_at_least(counts.threshold, entry[pick], end[pick], square)
        inside = entry < end
        counts.hist.index_add_(0, entry[inside], torch.ones_like(entry[inside], dtype=torch.int32))
        counts.fresh[q] += torch.bincount(i[inside], minlength=rows).int()
    _retire(counts, q0, rows)


def _retire(counts: RankCounts, q0: int, rows: int) -> None:
    """Drop positives whose rank passed the limit."""
    q = slice(q0, q0 + rows)
    due = ((counts.live[q] > 0) & (counts.fresh[q] > counts.live[q])).nonzero().flatten() + q0
    if not len(due):
        return
    counts.fresh[due] = 0
    first, followed = counts.start[due], counts.live[due].long() + 1
    k = torch.arange(int(followed.max()), device=first.device)
    entry = (first[:, None] + k).clamp(max=len(counts.hist) - 1)
    rank = counts.hist[entry].cumsum(1) + k
    passed = (rank >= counts.limit[due, None]) & (k < followed[:, None])
    last = torch.where(passed.any(1), (passed.int().argmax(1) - 1).clamp(min=0), followed - 1)
    counts.live[due] = last.to(counts.live.dtype)
    counts.cap[due] = (counts.threshold[first + last] * 1.000001).to(counts.cap.dtype)


class CompiledScan:
    """`TorchScan` with compiled kernels, for points in memory that they can read."""

    def __init__(self, kernels: ModuleType, task: Comparison, x: RankedSet, y: RankedSet) -> None:
        self.x, self.y, self._kernels, self._task = x, y, kernels, task
        self._points = [kernels.RankedPoints(*_arrays(ranked)) for ranked in (x, y)]

    def own_squares(self, low: int, high: int, start: Tensor, out: Tensor) -> None:
        """Exact squared distances from each query of [low, high) to its positives, ascending."""
        t, begin, squares = self._task, start.numpy(), out.numpy()
        if begin[-1] >= _PRODUCTS * (high - low):
            TorchScan(t, self.x, self.y).own_squares(low, high, start, out)
            return
        mutual = t.gallery is None and low == 0 and high == len(t.own_low)

        def measure(part: tuple[int, int]) -> None:
            self._kernels.own_squares(
                *self._points, *part, low, t.own_low, t.own_high, t.query_skip, t.gallery_skip,
                mutual, begin, squares,
            )  # fmt: skip

        threads = torch.get_num_threads() if begin[-1] >= _SHARED_FROM else 1
        # Ranges of queries with about as many positives each, none of which divides a class.
        wanted = np.searchsorted(begin, begin[-1] * np.arange(1, threads) / threads)
        classes = np.flatnonzero(np.diff(t.own_low[low:high])) + 1
        ends = np.r_[classes, high - low][np.searchsorted(classes, wanted)]
        parts = list(pairwise((low + np.unique(np.r_[0, ends, high - low])).tolist()))
        with ThreadPoolExecutor(len(parts)) as pool:
            list(pool.map(measure, parts))
        counts = np.diff(begin)
        bounds = np.r_[0, np.flatnonzero(np.diff(counts)) + 1, high - low]
        for a, b in pairwise(bounds.tolist()):  # queries with equally many positives
            if counts[a] >= self._kernels.SORTED_BELOW:
                squares[begin[a] : begin[b]].reshape(b - a, counts[a]).sort(axis=1)

    def counter(self, counts: RankCounts, low: int) -> Counter:
        """A function that counts one tile for these queries, from `low` on; one per thread."""
        names = self._kernels.CountArrays._fields
        known = self._kernels.CountArrays(*(getattr(counts, name).numpy() for name in names))
        frame = self.y.frame
        buffer = torch.empty(TILE * TILE, dtype=frame.norms.dtype)
        scratch = [np.empty(TILE * TILE + 1, np.int32) for _ in range(2)]
        own = self._task.own_low, self._task.own_high

        def count_tile(left: Frame, a: int, columns: slice, both: bool) -> None:
            right, norms = frame.block(columns), frame.norms[columns]
            tile = buffer[: len(left) * len(right)].view(len(left), len(right))
            # Without the norms: adding them is another pass over the tile.
            torch.addmm(norms, left.block(slice(None)), right.T, beta=0.0, alpha=-2.0, out=tile)
            self._kernels.count_tile(
                tile.numpy(), a, columns.start, *self._points, *own, low, known, both, *scratch
            )

        return count_tile


def _arrays(ranked: RankedSet) -> list[Array]:
    frame, factor = ranked.frame, ranked.frame.factor
    if not isinstance(factor, Tensor):
        factor = torch.full((len(frame.given),), factor, dtype=torch.float64)
    tensors = (frame.given, frame.order, factor, frame.norms, frame.band, ranked.twin)
    return [tensor.numpy() for tensor in tensors if tensor is not None]


Scan = CompiledScan | TorchScan


class _Plan(NamedTuple):
    """How the work is divided to fit into the memory.

    `ranges` of queries are ranked together; with `both` a tile serves the queries of its rows and
    of its columns; `resident`: a narrow copy of all points is kept.
    """

    ranges: list[slice]
    both: bool
    resident: bool
    threads: int


def positive_ranks(
    task: Comparison,
    *,
    normalize: bool,
    ties: str,
    max_memory: int | None,
    progress: ProgressOption,
    title: str,
) -> Iterator[RankBlock]:
    """Yield `(low, high, start, ranks)`: 0-based ranks of the positives of query positions.

    The positives of position `low + i` are `ranks[start[i] : start[i + 1]]`, ascending; a rank at
    or past the query's limit may be given as `BEYOND`. `title` is that of the progress line.
    """
    plan = _plan(task, max_memory)
    sets = ranked_sets(task, normalize=normalize, resident=plan.resident)
    x, y = sets[0], sets[-1]
    to_threshold = partial(tie_thresholds, zoom=x.frame.zoom, normalize=normalize, ties=ties)
    tiles = sum(len(range(part.start, part.stop, TILE)) for part in plan.ranges)
    total = tiles * (tiles + 1) // 2 if plan.both else tiles * len(range(0, len(y.twin), TILE))
    ticks = count(1)
    kernels = compiled.kernels if on_host(x.twin) else None
    scan = TorchScan(task, x, y) if kernels is None else CompiledScan(kernels, task, x, y)
    negatives = len(task.gallery_order) - (task.own_high - task.own_low)
    decided = x.frame.collapsed or not negatives.any()  # without a look at distances
    with progress_reporter(progress, title) as report:
        for part in plan.ranges:
            low, high = part.start, part.stop
            if decided:
                behind = negatives[part] if ties == "pessimistic" else 0
                before = np.cumsum(task.counts[part]) - task.counts[part] - behind
                ranks = np.arange(task.counts[part].sum()) - np.repeat(before, task.counts[part])
                yield low, high, np.r_[0, np.cumsum(task.counts[part])], ranks
                continue
            counts = _start_counts(task, scan, low, high, to_threshold)
            _count_all(scan, counts, low, high, plan, lambda: report(next(ticks), total))
            yield low, high, counts.start.cpu().numpy(), counts.ranks()


def _count_all(
    scan: Scan, counts: RankCounts, low: int, high: int, plan: _Plan, tick: Tick
) -> None:
    """Compare the queries [low, high) with the gallery, a tile at a time."""

    def worker() -> Worker:
        count_tile = scan.counter(counts, low)

        def count_tiles(a: int, columns: range) -> None:
            left = scan.x.frame.at(slice(a, min(a + TILE, high))).kept()
            for c in columns:
                count_tile(left, a, slice(c, min(c + TILE, len(scan.y.twin))), plan.both and c > a)

        return count_tiles

    rows, columns = range(low, high, TILE), range(0, len(scan.y.twin), TILE)
    most = -(-len(rows) // 2) if plan.both else len(rows)
    # Torch has threads of its own for each tile.
    threads = min(plan.threads, most) if isinstance(scan, CompiledScan) else 1
    each_tile(worker, rows, columns, both=plan.both, threads=threads, tick=tick)


def each_tile(
    worker: Callable[[], Worker], rows: range, columns: range, *, both: bool, threads: int,
    tick: Tick,
) -> None:  # fmt: skip
    """Process every tile once, shared between threads; `tick` is called after each.

    `worker()` returns a function for the tiles of row a and some columns, one per thread. With
    `both` a tile counts for the queries of its rows and of its columns, and the columns begin at
    the row's own. No two threads count for the same queries at a time. The threads divide torch's
    own among them.
    """
    n = len(rows)
    rounds = [[(a, columns[columns.index(a) :] if both else columns) for a in rows]]
    if both and threads > 1:
        # In round r, row i of tiles meets column r - i, modulo n, alone: no two tiles share any.
        rounds = [
            [(rows[i], columns[j : j + 1]) for i in range(n) if (j := (r - i) % n) >= i]
            for r in range(n)
        ]
    made = local()  # in each thread

    def do_tiles(a: int, some: range) -> int:
        if not hasattr(made, "worker"):
            made.worker = worker()
        made.worker(a, some)
        return len(some)

    before = torch.get_num_threads()
    share = (max(before // threads, 1),)
    with ExitStack() as stack:
        run: Callable[..., Iterable[int]] = map
        if threads > 1:
            pool = ThreadPoolExecutor(threads, "uncollapse-tiles", torch.set_num_threads, share)
            stack.callback(torch.set_num_threads, before)  # for threads that are yet to begin
            stack.callback(pool.shutdown, cancel_futures=True)
            run = pool.map
        for parts in rounds:
            for done in run(do_tiles, *zip(*parts, strict=True)):
                for _ in range(done):
                    tick()


def _plan(task: Comparison, max_memory: int | None) -> _Plan:
    """Plan the work to fit into the memory, or raise an error with the memory it needs."""
    queries, width = task.queries.shape
    points = queries + (0 if task.gallery is None else len(task.gallery))
    item = torch.finfo(screen_dtype()).bits // 8
    fixed = _BYTES_PER_ROW * points
    fixed += item * TILE * TILE * 4 + TILE * width * 40 + (8 << 20)
    most = max(int(task.counts.max()), 1)
    least = fixed + _BYTES_PER_POSITIVE * most
    if max_memory is None:
        max_memory = max(_MEMORY, 2 * least)
    if max_memory < least:
        raise InputError(
            "max_memory", f"{max_memory / 1e6:.0f} MB", f"at least {-(-least // 10**6)} MB here"
        )
    # Threads with tiles of their own, as far as half of what is left goes.
    each = item * TILE * TILE * 3 + TILE * width * 40
    more = min(torch.get_num_threads() - 1, (max_memory - least) // (2 * each))
    left = max_memory - fixed - more * each
    copy = item * points * width
    whole = _BYTES_PER_POSITIVE * int(task.counts.sum())
    if task.gallery is None and whole <= left:
        return _Plan([slice(0, queries)], True, copy <= left - whole, 1 + more)
    resident = copy <= left // 2
    room = max(min((left - copy * resident) // _BYTES_PER_POSITIVE, _TOGETHER), most)
    return _Plan(pieces(task.counts, room), False, resident, 1 + more)


def pieces(counts: Array, most: int) -> list[slice]:
    """Neighbouring entries taken together while their counts add up to at most `most`.

    >>> pieces(np.array([2, 2, 9, 1]), 4)
    [slice(0, 2, None), slice(2, 3, None), slice(3, 4, None)]
    """
    ends, parts, low = np.cumsum(counts), [], 0
    while low < len(counts):
        used = int(ends[low - 1]) if low else 0
        high = max(int(np.searchsorted(ends, used + most, side="right")), low + 1)
        parts.append(slice(low, high))
        low = high
    return parts


def parse_bytes(value: int | str | None, name: str = "max_memory") -> int | None:
    """Return a number of bytes, None for None, or raise.

    >>> parse_bytes("150MB"), parse_bytes("1 KiB"), parse_bytes(4096)
    (150000000, 1024, 4096)
    """
    if value is None:
        return None
    try:
        number = 0 if isinstance(value, bool) else int(_BYTES.validate_python(value))
    except ValidationError:
        number = 0
    if number < 1:
        raise InputError(name, repr(value), "bytes as a whole number or text such as '150MB'")
    return number


# The nearest of many rows: screened by tiles of float32, settled by differences in float64.

BLOCK, _COLUMNS = 512, 2048  # rows and columns of a tile: 4 MB
_GROUP = 8  # columns whose least value stands for them where it is told how far a list reaches
PAIRS = 1 << 20  # pairs sorted together

_Lists = tuple[Array, Array]  # rows and their exact squared distances, nearest (or farthest) first


def nearest_pairs(
    x: Frame, y: Frame, k: int, *, farthest: bool = False
) -> tuple[_Lists, _Lists | None]:
    """The k nearest rows of `y` for each row of `x`, at most a block; and the farthest, if asked.

    Ties go to the lower row.
    """
    doubt = 2 * x.band.cpu().numpy()[:, None]
    near, far = _Least(len(x), k, doubt), _Least(len(x), 1, doubt)
    buffer = x.norms.new_empty(len(x) * _COLUMNS)
    for left in range(0, len(y), _COLUMNS):
        part = slice(left, min(left + _COLUMNS, len(y)))
        out = buffer[: len(x) * (part.stop - left)].view(len(x), -1)
        tile = short_squares(x, slice(None), y, part, out=out).cpu().numpy()
        band = y.band[part].cpu().numpy()
        near.add(tile, band, left)
        if farthest:
            far.add(-tile, band, left)
    return near.settled(x, y, 1), far.settled(x, y, -1) if farthest else None


class _Least:
    """The entries that may be among the k least of their row, from tiles of a row's values.

    A value is right to `doubt` of its row over 2, and `band` of its column. Of each row the k least
    upper bounds so far are kept: what lies above them for certain is dropped.
    """

    def __init__(self, rows: int, k: int, doubt: Array) -> None:
        self.doubt, self.upper = doubt, np.full((rows, k), np.inf, doubt.dtype)
        self.entries: list[tuple[Array, Array, Array]] = []  # row, column, lower bound

    def add(self, tile: Array, band: Array, left: int) -> None:
        """Look at a tile, whose first column is `left`."""
        rows, columns = tile.shape
        k = self.upper.shape[1]
        groups = columns // _GROUP if 4 * k * _GROUP <= columns else columns
        whole = columns // groups * groups
        upper = tile + band
        least = upper[:, :whole].reshape(rows, -1, groups).min(axis=1)
        joined = np.concatenate([self.upper, least, upper[:, whole:]], axis=1)
        self.upper = np.partition(joined, k - 1, axis=1)[:, :k]
        lower = np.subtract(tile, band, out=upper)
        entry = np.flatnonzero(lower <= self.upper[:, -1:] + self.doubt)  # half of nonzero's time
        i, j = np.divmod(entry, columns)
        self.entries.append((i, j + left, lower.ravel()[entry]))

    def settled(self, x: Frame, y: Frame, sign: int) -> _Lists:
        """The k least by exact squared distances times `sign`; ties go to the lower column."""
        i, j, lower = (np.concatenate(part) for part in zip(*self.entries, strict=True))
        kept = lower <= (self.upper[:, -1:] + self.doubt)[i, 0]
        i, j = i[kept], j[kept]
        order = np.argsort(i, kind="stable")
        i, j = i[order], j[order]
        rows, k = self.upper.shape
        begin = np.searchsorted(i, np.arange(rows + 1))
        columns, squares = np.empty((rows, k), np.int64), np.empty((rows, k))
        for part in pieces(np.diff(begin), PAIRS):
            cut = slice(begin[part.start], begin[part.stop])
            square = pair_squares(x, i[cut], j[cut], y)
            order = np.lexsort((j[cut], sign * square, i[cut]))
            chosen = order[(begin[part] - cut.start)[:, None] + np.arange(k)]
            columns[part], squares[part] = j[cut][chosen], square[chosen]
        return columns, squares


def pair_squares(frame: Frame, i: Array, j: Array, other: Frame | None = None) -> Array:
    """Exact squared distances of the rows i to the rows j (of `other`), one for each pair."""
    device = frame.norms.device
    a, b = (torch.from_numpy(index).to(device) for index in (i, j))
    squares: Array = frame.squares(a, b, other).cpu().numpy()
    return squares
