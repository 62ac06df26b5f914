"""Exact ranks of the positives of every query by counting, tile by tile, in bounded memory.

No neighbour list is built: the rank of a positive is the number of nearer points. When the gallery
is the query set each tile serves its rows and its columns, so half the products are needed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from uncollapse._check import InputError, check_choice
from uncollapse.metrics import _tiles
from uncollapse.metrics._frame import Side, make_sides, narrow_dtype

__all__ = ["BEYOND", "TIES", "Task", "positive_ranks", "tie_thresholds"]

Array = np.ndarray[Any, Any]
BEYOND = np.iinfo(np.int32).max  # rank of a positive past its query's limit
TIES = ("pessimistic", "optimistic")
# Squared distances that differ by less than this share are equal: float64 sums have that error.
_TIE = 1e-12
# Rows scaled to norm 1 are themselves rounded: distances closer than this are equal then.
_UNIT_TIE = 4e-15
_TILE = 512
_BYTES_PER_ENTRY = 40  # threshold, count, rank and their temporaries, a positive
_BYTES_PER_ROW = 200  # indices, norms, bands, state and results, a query or gallery row


@dataclass(frozen=True)
class Task:
    """Who is compared with whom. Positions are places in the two orders.

    Query position q's own class is gallery positions `own_low[q] : own_high[q]`; those whose skip
    code differs from the query's are its `counts[q]` positives, the others are ignored; everything
    outside is a negative. Ranks are exact below `limit[q]`. `gallery is None`: the query set.
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


class _Plan(NamedTuple):
    """How the task fits the memory: queries a strip, whether tiles serve both sides, a copy."""

    strips: list[tuple[int, int]]
    both: bool
    resident: bool


def positive_ranks(
    task: Task, *, normalize: bool, ties: str, engine: str, max_memory: int,
    report: Callable[[int, int], object] = lambda done, total: None,
) -> Iterator[tuple[int, int, Array, Array]]:  # fmt: skip
    """Yield `(low, high, start, ranks)`: 0-based ranks of the positives of query positions.

    The positives of position `low + i` are `ranks[start[i] : start[i + 1]]`, ascending; a rank at
    or past the query's limit may be given as `BEYOND`.
    """
    scan = _Compiled if _use_numba(engine, task.queries) else _Plain
    plan = _plan(task, max_memory)
    sets = [("queries", task.queries, task.query_order)]
    if task.gallery is not None:
        sets.append(("gallery", task.gallery, task.gallery_order))
    sides = make_sides(sets, normalize=normalize, resident=plan.resident)
    x, y = sides[0], sides[-1]
    kernel = scan(task, x, y)
    columns = _tiles_of(0, y.size)
    rows = sum(len(_tiles_of(low, high)) for low, high in plan.strips)
    total = rows * (rows + 1) // 2 if plan.both else rows * len(columns)
    buffer = torch.empty(_TILE * _TILE, dtype=x.norms.dtype, device=x.norms.device)
    done = 0
    for low, high in plan.strips:
        strip = _open_strip(task, x, y, low, high, kernel.own, normalize, ties)
        for a, b in _tiles_of(low, high):
            left = x.block(a, b)
            doubled = -2.0 * left
            for c, e in columns:
                if plan.both and c < a:
                    continue
                right = left if plan.both and c == a else y.block(c, e)
                tile = buffer[: (b - a) * (e - c)].view(b - a, e - c)
                torch.mm(doubled, right.T, out=tile)
                kernel.scan(tile, a, c, strip, low, plan.both and c > a)
                done += 1
                report(done, total)
        yield low, high, strip.start.cpu().numpy(), _ranks(strip)


def tie_thresholds(squares: Tensor, x: Side, *, normalize: bool, ties: str) -> Tensor:
    """Turn positives' squared distances into what a negative must not exceed to come first.

    In place.
    """
    blunt = _UNIT_TIE * x.unit if normalize else 0.0
    if ties == "pessimistic":
        if blunt:
            squares.sqrt_().add_(blunt).square_()
        return squares.mul_(1 + _TIE)
    if blunt:
        squares.sqrt_().sub_(blunt).clamp_(min=0).square_()
    # At distance 0 nothing is nearer: no squared distance is at most -1.
    return squares.mul_(1 - _TIE).masked_fill_(squares == 0, -1.0)


class _Compiled:
    """Tiles scanned by numba."""

    def __init__(self, task: Task, x: Side, y: Side) -> None:
        from uncollapse.metrics import _numba

        self._kernels, self._task = _numba, task
        self._x, self._y = (
            _numba.Points(
                *(
                    getattr(side, name).numpy()
                    for name in ("rows", "order", "factor", "norms", "band", "twin")
                )
            )
            for side in (x, y)
        )
        self._strip: _tiles.Strip | None = None
        self._known: Any = None
        self._turned = torch.empty(_TILE * _TILE, dtype=x.norms.dtype)

    def own(self, low: int, high: int, start: Tensor, out: Tensor) -> None:
        """Distances to the positives."""
        t = self._task
        self._kernels.own_squares(
            self._x, self._y, low, high, t.own_low, t.own_high, t.query_skip, t.gallery_skip,
            t.gallery is None, start.numpy(), out.numpy(),
        )  # fmt: skip

    def scan(self, tile: Tensor, a: int, c: int, strip: _tiles.Strip, low: int, both: bool) -> None:
        """Count one tile for its rows and, with `both`, for its columns."""
        if strip is not self._strip:
            self._strip = strip
            arrays = (getattr(strip, field.name).numpy() for field in fields(strip))
            self._known = self._kernels.Progress(*arrays)
        known = self._known
        low_high = self._task.own_low, self._task.own_high
        self._kernels.scan(tile.numpy(), a, c, self._x, self._y, *low_high, low, known)
        if both:
            turned = self._turned[: tile.numel()].view(tile.T.shape)
            turned.copy_(tile.T)
            self._kernels.scan(turned.numpy(), c, a, self._x, self._x, *low_high, 0, known)


class _Plain:
    """Tiles scanned by torch."""

    def __init__(self, task: Task, x: Side, y: Side) -> None:
        self._x, self._y = x, y
        device = x.rows.device
        self._low, self._high, self._x_skip, self._y_skip = (
            torch.from_numpy(array).to(device)
            for array in (task.own_low, task.own_high, task.query_skip, task.gallery_skip)
        )

    def own(self, low: int, high: int, start: Tensor, out: Tensor) -> None:
        """Distances to the positives."""
        _tiles.own_squares(
            self._x, self._y, low, high, self._low, self._high, self._x_skip, self._y_skip,
            start, out,
        )  # fmt: skip

    def scan(self, tile: Tensor, a: int, c: int, strip: _tiles.Strip, low: int, both: bool) -> None:
        """Count one tile for its rows and, with `both`, for its columns."""
        rows, columns = tile.shape
        tile += self._y.norms[c : c + columns]
        tile += self._x.norms[a : a + rows, None]
        own_low, own_high = self._low[a : a + rows], self._high[a : a + rows]
        if int(own_low.min()) < c + columns and int(own_high.max()) > c:
            place = torch.arange(c, c + columns, device=tile.device)
            tile[(place >= own_low[:, None]) & (place < own_high[:, None])] = torch.inf
        _tiles.scan(tile, self._x, a, self._y, c, strip, a - low)
        if both:
            _tiles.scan(tile.T, self._x, c, self._x, a, strip, c)


def _open_strip(
    task: Task, x: Side, y: Side, low: int, high: int,
    own: Callable[[int, int, Tensor, Tensor], None], normalize: bool, ties: str,
) -> _tiles.Strip:  # fmt: skip
    """Thresholds of the queries [low, high): what a negative must not exceed to come first."""
    device, dtype = x.norms.device, x.norms.dtype
    counts = torch.from_numpy(task.counts[low:high]).to(device)
    start = torch.zeros(high - low + 1, dtype=torch.int64, device=device)
    torch.cumsum(counts, 0, out=start[1:])
    threshold = torch.empty(int(start[-1]), dtype=torch.float64, device=device)
    own(low, high, start, threshold)
    threshold = tie_thresholds(threshold, x, normalize=normalize, ties=ties)
    some = counts > 0
    first, last = start[:-1][some], start[1:][some] - 1
    sure = torch.full((high - low,), -torch.inf, dtype=dtype, device=device)
    cap = sure.clone()
    sure[some] = (threshold[first] * (1 - 1e-6)).to(dtype)
    cap[some] = (threshold[last] * (1 + 1e-6)).to(dtype)
    return _tiles.Strip(
        sure=sure,
        cap=cap,
        live=(counts - 1).int(),
        start=start,
        threshold=threshold,
        hist=torch.zeros(len(threshold), dtype=torch.int32, device=device),
        fresh=torch.zeros(high - low, dtype=torch.int32, device=device),
        limit=torch.from_numpy(task.limit[low:high]).to(device),
    )


def _ranks(strip: _tiles.Strip) -> Array:
    """Place among the positives plus negatives before; `BEYOND` where they were not followed."""
    start, live = strip.start.cpu().numpy(), strip.live.cpu().numpy()
    counts = np.diff(start)
    some = counts > 0
    first, last, counts = start[:-1][some], (start[:-1] + live)[some], counts[some]
    place = np.arange(start[-1])
    ranks = np.cumsum(strip.hist.cpu().numpy(), dtype=np.int64)
    ranks += place
    ranks -= np.repeat(np.where(first > 0, ranks[first - 1] + 1, 0), counts)
    ranks[place > np.repeat(last, counts)] = BEYOND
    return ranks


def _plan(task: Task, max_memory: int) -> _Plan:
    """Fit the work into the memory, or say what it would take."""
    queries, width = task.queries.shape
    points = queries + (0 if task.gallery is None else len(task.gallery))
    item = torch.finfo(narrow_dtype()).bits // 8
    fixed = _BYTES_PER_ROW * points
    fixed += item * _TILE * _TILE * 4 + _TILE * width * 40 + (8 << 20)
    entries = task.counts.astype(np.int64)
    least = fixed + _BYTES_PER_ENTRY * max(int(entries.max()), 1)
    if max_memory < least:
        raise InputError(
            "max_memory", f"{max_memory / 1e6:.0f} MB", f"at least {-(-least // 10**6)} MB here"
        )
    left = max_memory - fixed
    copy = item * points * width
    whole = _BYTES_PER_ENTRY * int(entries.sum())
    if task.gallery is None and whole <= left:
        return _Plan([(0, queries)], True, copy <= left - whole)
    resident = copy <= left // 2
    room = max((left - copy * resident) // _BYTES_PER_ENTRY, int(entries.max()))
    ends = np.cumsum(entries)
    strips, low = [], 0
    while low < queries:
        used = int(ends[low - 1]) if low else 0
        high = max(int(np.searchsorted(ends, used + room, side="right")), low + 1)
        strips.append((low, high))
        low = high
    return _Plan(strips, False, resident)


def _tiles_of(low: int, high: int) -> list[tuple[int, int]]:
    return [(a, min(a + _TILE, high)) for a in range(low, high, _TILE)]


def _use_numba(engine: str, x: Tensor) -> bool:
    check_choice("engine", engine, ("auto", "numba", "torch"))
    if engine == "numba" and x.device.type != "cpu":
        raise InputError("engine", "'numba' with points on " + x.device.type, "'torch' or 'auto'")
    if engine != "auto":
        return engine == "numba"
    return x.device.type == "cpu" and importlib.util.find_spec("numba") is not None
