"""Exact ranks of the positives of every query by counting, tile by tile, in bounded memory.

No neighbour list is built: the rank of a positive is the number of nearer points. When the gallery
is the query set each tile serves its rows and its columns, so half the products are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import NamedTuple

import numpy as np
import torch
from pydantic import ByteSize, TypeAdapter, ValidationError

from uncollapse._base.arrays import Array
from uncollapse._base.check import InputError
from uncollapse.distances import Frame
from uncollapse.metrics._compiled_scan import Scan, scan_for
from uncollapse.metrics._ranked_set import RankedSet, narrow_dtype, ranked_sets
from uncollapse.metrics._strip import Strip, open_strip, ranks_of, unproven
from uncollapse.metrics._task import Task
from uncollapse.metrics._tile_scan import TILE
from uncollapse.metrics._tile_turns import Turns, in_turn

__all__ = ["parse_bytes", "positive_ranks"]

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
