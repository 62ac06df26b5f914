"""Scan of a tile of squared distances: how many negatives precede each positive.

In torch, on any device. `_compiled_scan` is the same by compiled kernels; both are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count, pairwise
from queue import SimpleQueue
from threading import Condition
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import ByteSize, TypeAdapter, ValidationError
from torch import Tensor

from uncollapse._base.arrays import Array
from uncollapse._base.check import InputError
from uncollapse._base.extras import compiled
from uncollapse.distances import Frame, exact_squares, on_host, short_squares
from uncollapse.metrics.rank_tasks import (
    RankedSet,
    Strip,
    Task,
    first_at_least,
    narrow_dtype,
    open_strip,
    ranked_sets,
    ranks_of,
    unproven,
)

__all__ = [
    "TILE",
    "CompiledScan",
    "Counter",
    "Scan",
    "TorchScan",
    "Turns",
    "in_turn",
    "parse_bytes",
    "positive_ranks",
    "scan_for",
]


# Scan of a tile of squared distances: how many negatives precede each positive.

TILE = 640  # rows and columns: one float32 tile stays near the cores
# Compares the rows, the first of which is query a, with these columns of the gallery and counts for
# the rows; if told to, for the columns as queries too.
Counter = Callable[[Frame, int, slice, bool], None]

_OWN_ELEMENTS = 1 << 20  # distances to positives held at a time


class TorchScan:
    """Distances to positives, and scans of tiles, for one task."""

    shared = False  # whether threads should take turns: torch has its own for each tile

    def __init__(self, task: Task, x: RankedSet, y: RankedSet) -> None:
        self._x, self._y = x, y
        self._low, self._high, self._x_skip, self._y_skip = (
            torch.from_numpy(array).to(x.twin.device)
            for array in (task.own_low, task.own_high, task.query_skip, task.gallery_skip)
        )

    def own(self, low: int, high: int, start: Tensor, out: Tensor) -> None:
        """Exact squared distances from each query of [low, high) to its positives, ascending."""
        # A query whose class is not in the gallery has an empty range where the next class begins.
        new = (self._low[low:high].diff() != 0) | (self._high[low:high].diff() != 0)
        groups = [low, *(torch.nonzero(new).flatten() + low + 1).tolist(), high]
        for a, b in pairwise(groups):
            own = slice(int(self._low[a]), int(self._high[a]))
            if own.start == own.stop:
                continue
            step = max(1, _OWN_ELEMENTS // (own.stop - own.start))
            for c in range(a, b, step):
                e = min(c + step, b)
                square = exact_squares(self._x.frame, slice(c, e), self._y.frame, own)
                square[self._x_skip[c:e, None] == self._y_skip[own]] = torch.inf
                values = square.sort(1).values
                out[int(start[c - low]) : int(start[e - low])] = values[torch.isfinite(values)]

    def counter(self, strip: Strip, low: int) -> Counter:
        """What counts tiles for this strip, whose first query is `low`."""
        buffer = self._x.frame.norms.new_empty(TILE * TILE)

        def count(left: Frame, a: int, columns: slice, both: bool) -> None:
            width = columns.stop - columns.start
            tile = buffer[: len(left) * width].view(len(left), width)
            short_squares(left, slice(None), self._y.frame, columns, out=tile)
            self._scan(tile, a, columns.start, strip, low, both)

        return count

    def _scan(self, tile: Tensor, a: int, c: int, strip: Strip, low: int, both: bool) -> None:
        rows, columns = tile.shape
        tile += self._x.frame.norms[a : a + rows, None]
        own_low, own_high = self._low[a : a + rows], self._high[a : a + rows]
        if int(own_low.min()) < c + columns and int(own_high.max()) > c:
            place = torch.arange(c, c + columns, device=tile.device)
            tile[(place >= own_low[:, None]) & (place < own_high[:, None])] = torch.inf
        _count(tile, self._x, a, self._y, c, strip, a - low)
        if both:
            _count(tile.T, self._x, c, self._x, a, strip, c)


def _count(
    tile: Tensor, x: RankedSet, row0: int, y: RankedSet, column0: int, strip: Strip, q0: int
) -> None:
    """The tile's rows are queries q0... of the strip; their own classes are at infinity."""
    rows, columns = tile.shape
    q = slice(q0, q0 + rows)
    bands = x.frame.band[row0 : row0 + rows, None], y.frame.band[column0 : column0 + columns]
    margin = bands[0] + bands[1]
    nearer = tile + margin < strip.sure[q, None]
    open_pairs = (tile - margin <= strip.cap[q, None]).logical_and_(nearer.logical_not())
    certain = nearer.sum(1, dtype=torch.int32)
    live = strip.live[q] >= 0
    strip.hist.index_add_(0, strip.start[:-1][q][live], certain[live])
    strip.fresh[q] += certain

    i, j = open_pairs.nonzero(as_tuple=True)
    if len(i):
        # Count each such negative at the first positive it precedes.
        value, around = tile[i, j], margin[i, j]
        begin = strip.start[:-1][q][i]
        end = begin + strip.live[q][i] + 1
        place = first_at_least(strip.threshold, begin, end, (value - around).double())
        inside = place < end
        at = strip.threshold[place.clamp(max=len(strip.threshold) - 1)]
        unsure = inside & (at <= (value + around).double())
        pick = unsure.nonzero().flatten()
        a, b = row0 + i[pick], column0 + j[pick]
        square = torch.zeros(len(pick), dtype=torch.float64, device=tile.device)
        apart = (x.twin[a] != y.twin[b]).nonzero().flatten()
        square[apart] = x.frame.squares(a[apart], b[apart], y.frame)
        place[pick] = first_at_least(strip.threshold, place[pick], end[pick], square)
        inside = place < end
        one = torch.ones(1, dtype=torch.int32, device=tile.device)
        strip.hist.index_add_(0, place[inside], one.expand(int(inside.sum())))
        strip.fresh[q] += torch.bincount(i[inside], minlength=rows).int()
    _retire(strip, q0, rows)


def _retire(strip: Strip, q0: int, rows: int) -> None:
    """Drop positives whose rank passed the limit."""
    q = slice(q0, q0 + rows)
    due = ((strip.live[q] > 0) & (strip.fresh[q] > strip.live[q])).nonzero().flatten() + q0
    if not len(due):
        return
    strip.fresh[due] = 0
    first, count = strip.start[due], strip.live[due].long() + 1
    k = torch.arange(int(count.max()), device=first.device)
    entry = (first[:, None] + k).clamp(max=len(strip.hist) - 1)
    rank = strip.hist[entry].cumsum(1) + k
    passed = (rank >= strip.limit[due, None]) & (k < count[:, None])
    any_passed = passed.any(1)
    last = torch.where(any_passed, (passed.int().argmax(1) - 1).clamp(min=0), count - 1)
    strip.live[due] = last.to(strip.live.dtype)
    strip.cap[due] = (strip.threshold[first + last] * 1.000001).to(strip.cap.dtype)


# Tiles of a comparison shared between threads, so that no two write to the same queries at once.

Tile = tuple[int, int]  # the first row and the first column
Work = Callable[[int, int], None]


class Turns:
    """Hands out the tiles of `rows` and `columns`, those of one row of tiles one after another.

    With `both` a tile counts for the queries of its rows and of its columns, and columns begin at
    the row's own; else for those of its rows alone. No tile is handed out while another is at work
    on its queries. Rows of tiles that nobody has begun take no memory.

    >>> turns = Turns(range(3), range(3), both=True)
    >>> first, second = turns.take(), turns.take()
    >>> first, second, turns.take(done=first)
    ((0, 0), (1, 1), (0, 2))
    """

    def __init__(self, rows: range, columns: range, *, both: bool) -> None:
        self._columns, self._both = columns, both
        self._closed = list(rows)
        self._open: dict[int, list[int]] = {}
        self._busy: set[int] = set()
        self._changed = Condition()

    def take(self, done: Tile | None = None) -> Tile | None:
        """The next tile for who is `done` with another; None when there are none, or on `stop`.

        Waits while all that is left must wait for others.
        """
        with self._changed:
            if done is not None:
                self._busy -= self._written(done)
                self._changed.notify_all()
            while self._closed or self._open:
                tile = self._free(None if done is None else done[0])
                if tile is not None:
                    self._busy |= self._written(tile)
                    return tile
                self._changed.wait()
            return None

    def stop(self) -> None:
        """Hand out no more."""
        with self._changed:
            self._closed, self._open = [], {}
            self._changed.notify_all()

    def _free(self, row: int | None) -> Tile | None:
        begun = [a for a in self._open if a != row]
        for a in [*([row] if row in self._open else []), *begun]:
            tile = self._first_of(a)
            if tile is not None:
                return tile
        for n, a in enumerate(self._closed):
            if a not in self._busy:
                del self._closed[n]
                self._open[a] = [c for c in self._columns if c >= a or not self._both]
                return self._first_of(a)
        return None

    def _first_of(self, a: int) -> Tile | None:
        if a in self._busy:
            return None
        left = self._open[a]
        for n, c in enumerate(left):
            if not self._both or c not in self._busy:
                del left[n]
                if not left:
                    del self._open[a]
                return a, c
        return None

    def _written(self, tile: Tile) -> set[int]:
        return set(tile) if self._both else {tile[0]}


def in_turn(turns: Turns, worker: Callable[[], Work], threads: int) -> Iterator[None]:
    """Do all tiles, each by one of the workers; yields after each tile.

    `worker` is called once in each of the `threads`, which divide torch's own among them.
    """
    if threads == 1:
        work = worker()
        tile = turns.take()
        while tile is not None:
            work(*tile)
            yield
            tile = turns.take(tile)
        return
    before = torch.get_num_threads()
    ended: SimpleQueue[BaseException | bool] = SimpleQueue()

    def run() -> None:
        try:
            torch.set_num_threads(max(before // threads, 1))  # of this thread alone
            work, tile = worker(), turns.take()
            while tile is not None:
                work(*tile)
                ended.put(False)
                tile = turns.take(tile)
            ended.put(True)
        except BaseException as error:
            turns.stop()
            ended.put(error)

    try:
        with ThreadPoolExecutor(threads, "uncollapse-tiles") as pool:
            for _ in range(threads):
                pool.submit(run)
            try:
                at_work = threads
                while at_work:
                    news = ended.get()
                    if isinstance(news, BaseException):
                        raise news
                    at_work -= news
                    if not news:
                        yield
            finally:
                turns.stop()
    finally:
        torch.set_num_threads(before)  # for threads that are yet to begin


# The scan of `_tile_scan` by the compiled kernels, where they may look at the points' memory.

_ALL = slice(None)
_SHARED_FROM = 1 << 14  # distances to positives from which threads share them


class CompiledScan:
    """The same as `TorchScan`."""

    shared = True

    def __init__(self, kernels: ModuleType, task: Task, x: RankedSet, y: RankedSet) -> None:
        self._kernels, self._task = kernels, task
        self._x, self._y = (kernels.RankedPoints(*_arrays(points)) for points in (x, y))
        self._columns = y.frame

    def own(self, low: int, high: int, start: Tensor, out: Tensor) -> None:
        """Exact squared distances from each query of [low, high) to its positives, ascending."""
        t, begin = self._task, start.numpy()
        mutual = t.gallery is None and low == 0 and high == len(t.own_low)

        def measure(part: tuple[int, int]) -> None:
            self._kernels.own_squares(
                self._x, self._y, *part, low, t.own_low, t.own_high, t.query_skip, t.gallery_skip,
                mutual, begin, out.numpy(),
            )  # fmt: skip

        parts = [
            (low + a, low + b)
            for a, b in _shares(t.own_low[low:high], begin, torch.get_num_threads())
        ]
        if len(parts) == 1:
            measure(parts[0])
        else:
            with ThreadPoolExecutor(len(parts)) as pool:
                list(pool.map(measure, parts))
        counts = np.diff(begin)
        bounds = np.r_[0, np.flatnonzero(np.diff(counts)) + 1, high - low]
        for a, b in pairwise(bounds.tolist()):  # queries with equally many positives
            if counts[a] >= self._kernels.SORTED_BELOW:
                out[begin[a] : begin[b]].numpy().reshape(b - a, counts[a]).sort(axis=1)

    def counter(self, strip: Strip, low: int) -> Counter:
        """What counts tiles for this strip, whose first query is `low`: one for each thread."""
        names = self._kernels.StripArrays._fields
        known = self._kernels.StripArrays(*(getattr(strip, n).numpy() for n in names))
        buffer = torch.empty(TILE * TILE, dtype=self._columns.norms.dtype)
        pairs, grouped = (np.empty(TILE * TILE + 1, np.int32) for _ in range(2))
        own = self._task.own_low, self._task.own_high

        def count(left: Frame, a: int, columns: slice, both: bool) -> None:
            right, norms = self._columns.block(columns), self._columns.norms[columns]
            tile = buffer[: len(left) * len(right)].view(len(left), len(right))
            # Without the norms: adding them is another pass over the tile.
            torch.addmm(norms, left.block(_ALL), right.T, beta=0.0, alpha=-2.0, out=tile)
            self._kernels.count_tile(
                tile.numpy(), a, columns.start, self._x, self._y, *own, low, known,
                both, pairs, grouped,
            )  # fmt: skip

        return count


Scan = CompiledScan | TorchScan


def scan_for(task: Task, x: RankedSet, y: RankedSet) -> Scan:
    """Compiled on a CPU if numba is there, in torch otherwise."""
    kernels = compiled.kernels if on_host(x.twin) else None
    return TorchScan(task, x, y) if kernels is None else CompiledScan(kernels, task, x, y)


def _shares(own_low: Array, start: Array, threads: int) -> list[tuple[int, int]]:
    """Ranges of queries with about as many positives each, none of which divides a class."""
    if start[-1] < _SHARED_FROM:
        threads = 1
    wanted = np.searchsorted(start, start[-1] * np.arange(1, threads) / threads)
    classes = np.flatnonzero(np.diff(own_low)) + 1
    bounds = np.r_[classes, len(own_low)][np.searchsorted(classes, wanted)]
    return list(pairwise(np.unique(np.r_[0, bounds, len(own_low)]).tolist()))


def _arrays(points: RankedSet) -> list[Any]:
    frame = points.frame
    factor = frame.factor
    if not isinstance(factor, Tensor):
        factor = torch.full((len(frame.given),), factor, dtype=torch.float64)
    tensors = (frame.given, frame.order, factor, frame.norms, frame.band, points.twin)
    return [tensor.numpy() for tensor in tensors if tensor is not None]


# Exact ranks of the positives of every query by counting, tile by tile, in bounded memory.

_BYTES_PER_ENTRY = 40  # threshold, count, rank and their temporaries, a positive
_BYTES = TypeAdapter(ByteSize)
_BYTES_PER_ROW = 200  # indices, norms, bands, state and results, a query or gallery row


class _Plan(NamedTuple):
    """How the task fits the memory: queries a strip, if tiles serve both sides, a copy, threads."""

    strips: list[tuple[int, int]]
    both: bool
    resident: bool
    threads: int


def positive_ranks(
    task: Task, *, normalize: bool, ties: str, max_memory: int,
    report: Callable[[int, int], object] = lambda done, total: None,
) -> Iterator[tuple[int, int, Array, Array]]:  # fmt: skip
    """Yield `(low, high, start, ranks)`: 0-based ranks of the positives of query positions.

    The positives of position `low + i` are `ranks[start[i] : start[i + 1]]`, ascending; a rank at
    or past the query's limit may be given as `BEYOND`.
    """
    plan = _plan(task, max_memory)
    sets = ranked_sets(task.sets(), normalize=normalize, resident=plan.resident)
    x, y = sets[0], sets[-1]
    scan = scan_for(task, x, y)
    opened = partial(open_strip, normalize=normalize, ties=ties)
    tiles = sum(len(range(low, high, TILE)) for low, high in plan.strips)
    total = tiles * (tiles + 1) // 2 if plan.both else tiles * len(range(0, len(y), TILE))
    ticks = count(1)
    for low, high in plan.strips:
        strip = opened(task, x.frame, y.frame, low, high, scan.own)
        for _ in _scan(scan, x, y, strip, low, high, plan):
            report(next(ticks), total)
        start, ranks = strip.start.cpu().numpy(), ranks_of(strip)
        failed = unproven(strip, ranks)
        if len(failed):  # the guess at the limit was too low for these few: once more without
            some = task.of_queries(low + failed)
            few = x.at(torch.from_numpy(low + failed).to(x.twin.device))
            again = scan_for(some, few, y)
            rest = opened(some, few.frame, y.frame, 0, len(failed), again.own, guess=False)
            for _ in _scan(again, few, y, rest, 0, len(failed), plan._replace(both=False)):
                pass
            begin, counts = rest.start.cpu().numpy()[:-1], some.counts
            place = np.arange(counts.sum()) + np.repeat(start[failed] - begin, counts)
            ranks[place] = ranks_of(rest)
        yield low, high, start, ranks


def _scan(
    scan: Scan, x: RankedSet, y: RankedSet, strip: Strip, low: int, high: int, plan: _Plan
) -> Iterator[None]:
    """Compare the queries [low, high) with the gallery, a tile at a time."""

    def worker() -> Callable[[int, int], None]:
        count = scan.counter(strip, low)
        left: dict[int, Frame] = {}

        def compare(a: int, c: int) -> None:
            if a not in left:
                left.clear()
                left[a] = x.frame.at(slice(a, min(a + TILE, high))).kept()
            count(left[a], a, slice(c, min(c + TILE, len(y))), plan.both and c > a)

        return compare

    rows, columns = range(low, high, TILE), range(0, len(y), TILE)
    most = -(-len(rows) // 2) if plan.both else len(rows)
    threads = min(plan.threads, most) if scan.shared else 1
    yield from in_turn(Turns(rows, columns, both=plan.both), worker, threads)


def _plan(task: Task, max_memory: int) -> _Plan:
    """Fit the work into the memory, or say what it would take."""
    queries, width = task.queries.shape
    points = queries + (0 if task.gallery is None else len(task.gallery))
    item = torch.finfo(narrow_dtype()).bits // 8
    fixed = _BYTES_PER_ROW * points
    fixed += item * TILE * TILE * 4 + TILE * width * 40 + (8 << 20)
    entries = task.counts.astype(np.int64)
    least = fixed + _BYTES_PER_ENTRY * max(int(entries.max()), 1)
    if max_memory < least:
        raise InputError(
            "max_memory", f"{max_memory / 1e6:.0f} MB", f"at least {-(-least // 10**6)} MB here"
        )
    # Threads with tiles of their own, as far as half of what is left goes.
    each = item * TILE * TILE * 3 + TILE * width * 40
    more = min(torch.get_num_threads() - 1, (max_memory - least) // (2 * each))
    left = max_memory - fixed - more * each
    copy = item * points * width
    whole = _BYTES_PER_ENTRY * int(entries.sum())
    if task.gallery is None and whole <= left:
        return _Plan([(0, queries)], True, copy <= left - whole, 1 + more)
    resident = copy <= left // 2
    room = max((left - copy * resident) // _BYTES_PER_ENTRY, int(entries.max()))
    ends = np.cumsum(entries)
    strips, low = [], 0
    while low < queries:
        used = int(ends[low - 1]) if low else 0
        high = max(int(np.searchsorted(ends, used + room, side="right")), low + 1)
        strips.append((low, high))
        low = high
    return _Plan(strips, False, resident, 1 + more)


def parse_bytes(value: int | str, name: str = "max_memory") -> int:
    """Return a number of bytes, or raise.

    >>> parse_bytes("150MB"), parse_bytes("1 KiB"), parse_bytes(4096)
    (150000000, 1024, 4096)
    """
    try:
        number = 0 if isinstance(value, bool) else int(_BYTES.validate_python(value))
    except ValidationError:
        number = 0
    if number < 1:
        raise InputError(name, repr(value), "bytes as a whole number or text such as '150MB'")
    return number
