"""From labels to a ranking task: one order in which every class is a range of positions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, class_ids, points
from uncollapse._base.check import InputError
from uncollapse._base.extras import compiled
from uncollapse.distances import Frame, float32_is_exact, on_host, short_squares

__all__ = [
    "BEYOND",
    "TIES",
    "RankedSet",
    "Strip",
    "Task",
    "check_norms",
    "equal_rows",
    "first_at_least",
    "joint_ids",
    "make_task",
    "narrow_dtype",
    "open_strip",
    "ranked_points",
    "ranked_sets",
    "ranks_of",
    "tie_thresholds",
    "two_sets",
    "unproven",
]


# From labels to a ranking task: one order in which every class is a range of positions.


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

    def sets(self) -> list[tuple[str, Tensor, Array]]:
        """The one or two sets of points: name, rows and order."""
        one = [("queries", self.queries, self.query_order)]
        if self.gallery is None:
            return one
        return [*one, ("gallery", self.gallery, self.gallery_order)]

    def of_queries(self, positions: Array) -> Task:
        """The same task for some query positions only; its gallery is a set of its own."""
        mine = ("query_order", "own_low", "own_high", "query_skip", "counts", "limit")
        gallery = self.queries if self.gallery is None else self.gallery
        return replace(self, gallery=gallery, **{n: getattr(self, n)[positions] for n in mine})


def make_task(
    queries: Tensor,
    query_ids: Array,
    gallery: Tensor | None,
    gallery_ids: Array,
    query_skip: Array,
    gallery_skip: Array,
    limit: Callable[[Array], Array],
) -> Task:
    """A task whose positives are the gallery rows of the same id and another skip code.

    `limit` turns each query's count of positives into the rank from which ranks need not be exact.
    """
    query_order = np.argsort(query_ids, kind="stable")
    gallery_order = np.argsort(gallery_ids, kind="stable")
    q, g = query_ids[query_order], gallery_ids[gallery_order]
    q_skip, g_skip = query_skip[query_order], gallery_skip[gallery_order]
    own_low, own_high = np.searchsorted(g, q, side="left"), np.searchsorted(g, q, side="right")
    codes, skip = np.unique(np.concatenate([q_skip, g_skip]), return_inverse=True)
    skip = skip.astype(np.int64)
    q_skip, g_skip = skip[: len(q)], skip[len(q) :]
    pairs = np.sort(g * len(codes) + g_skip)
    mine = q * len(codes) + q_skip
    skipped = np.searchsorted(pairs, mine, side="right") - np.searchsorted(pairs, mine, side="left")
    counts = own_high - own_low - skipped
    return Task(
        queries, query_order, gallery, gallery_order, own_low, own_high, q_skip, g_skip, counts,
        np.minimum(limit(counts), np.iinfo(np.int32).max).astype(np.int64),
    )  # fmt: skip


def two_sets(
    queries: ArrayLike, gallery: ArrayLike, names: tuple[str, str] = ("queries", "gallery")
) -> tuple[Tensor, Tensor]:
    """Both sets checked, detached, of one dtype and width, on a device that has float64."""
    x, y = ranked_points(queries, names[0]), ranked_points(gallery, names[1])
    if x.shape[1] != y.shape[1]:
        raise InputError(names[1], f"{y.shape[1]} columns", f"{x.shape[1]} as in {names[0]}")
    dtype = torch.promote_types(x.dtype, y.dtype)
    return x.to(dtype), y.to(device=x.device, dtype=dtype)


def ranked_points(x: ArrayLike, name: str) -> Tensor:
    """One set checked, detached and contiguous, on a device that has float64."""
    tensor = points(x, name).detach()
    return (tensor.cpu() if tensor.device.type == "mps" else tensor).contiguous()


def joint_ids(
    first: ArrayLike, n: int, second: ArrayLike, m: int, names: tuple[str, str]
) -> tuple[Array, Array]:
    """Class numbers of two label lists over their common classes; nothing is cast to float."""
    ids_a, classes_a = class_ids(first, n, names[0])
    ids_b, classes_b = class_ids(second, m, names[1])
    text = [_are_names(classes) for classes in (classes_a, classes_b)]
    if text[0] != text[1]:
        given = " and ".join(str(classes.dtype) for classes in (classes_a, classes_b))
        raise InputError(names[1], given, f"labels of one kind with {names[0]}")
    if classes_a.dtype != classes_b.dtype and not text[0]:  # uint64 and int64 would become float64
        classes_a, classes_b = classes_a.astype(object), classes_b.astype(object)
    _, place = np.unique(np.concatenate([classes_a, classes_b]), return_inverse=True)
    place = place.astype(np.int64)
    return place[: len(classes_a)][ids_a], place[len(classes_a) :][ids_b]


def _are_names(classes: Array) -> bool:
    return classes.dtype.kind in "US" or isinstance(classes.flat[0], str | bytes)


# Queries ranked together: the thresholds of their positives, and what is known so far.

BEYOND = np.iinfo(np.int32).max  # rank of a positive past its query's limit
TIES = ("pessimistic", "optimistic")
# Squared distances that differ by less than this share are equal: float64 sums have that error.
_TIE = 1e-12
# Rows scaled to norm 1 are themselves rounded: distances closer than this are equal then.
_UNIT_TIE = 4e-15
_SAMPLE = 256  # gallery rows from which it is guessed where the limit lies
_SAFETY = 3.0  # standard deviations
_MANY = 16  # positives from which the guess pays
_GUESS_ROWS = 1024
_PAYS = 0.25  # share of queries for which the guess has to spare something


@dataclass(frozen=True)
class Strip:
    """Queries being ranked together, and what is known so far.

    Query q's positives are entries `start[q] : start[q + 1]` of `threshold`, ascending: a negative
    precedes positive k if its squared distance is at most `threshold[start[q] + k]`. `hist` counts
    each negative at the first positive it precedes. Positives after `live[q]` have a rank of at
    least `limit[q]` and are no longer followed; `guess[q]` is `live[q]` as it was guessed at the
    start (-1: not guessed), to be proved in the end. `sure` and `cap` are the first and the last
    live threshold, moved outwards by their rounding; `fresh` counts what came since `live` was set.
    """

    sure: Tensor
    cap: Tensor
    live: Tensor
    start: Tensor
    threshold: Tensor
    hist: Tensor
    fresh: Tensor
    limit: Tensor
    guess: Tensor


def tie_thresholds(squares: Tensor, x: Frame, *, normalize: bool, ties: str) -> Tensor:
    """Turn positives' squared distances into what a negative must not exceed to come first.

    In place.
    """
    blunt = _UNIT_TIE * x.zoom if normalize else 0.0
    if ties == "pessimistic":
        if blunt:
            squares.sqrt_().add_(blunt).square_()
        return squares.mul_(1 + _TIE)
    if blunt:
        squares.sqrt_().sub_(blunt).clamp_(min=0).square_()
    # At distance 0 nothing is nearer: no squared distance is at most -1.
    return squares.mul_(1 - _TIE).masked_fill_(squares == 0, -1.0)


def open_strip(
    task: Task, x: Frame, y: Frame, low: int, high: int,
    own: Callable[[int, int, Tensor, Tensor], None], *, normalize: bool, ties: str,
    guess: bool = True,
) -> Strip:  # fmt: skip
    """Thresholds of the queries [low, high): what a negative must not exceed to come first."""
    device, dtype = x.norms.device, x.norms.dtype
    counts = torch.from_numpy(task.counts[low:high]).to(device)
    start = torch.zeros(high - low + 1, dtype=torch.int64, device=device)
    torch.cumsum(counts, 0, out=start[1:])
    threshold = torch.empty(int(start[-1]), dtype=torch.float64, device=device)
    own(low, high, start, threshold)
    threshold = tie_thresholds(threshold, x, normalize=normalize, ties=ties)
    limit = torch.from_numpy(task.limit[low:high]).to(device)
    live, guessed = counts - 1, torch.full_like(counts, -1)
    if guess:
        fewer = _guess(task, x, y, low, high, start, threshold)
        guessed = torch.where(fewer < live, fewer, guessed)
        live = torch.minimum(live, fewer)
    some = counts > 0
    first, last = start[:-1][some], (start[:-1] + live)[some]
    sure = torch.full((high - low,), -torch.inf, dtype=dtype, device=device)
    cap = sure.clone()
    sure[some] = (threshold[first] * (1 - 1e-6)).to(dtype)
    cap[some] = (threshold[last] * (1 + 1e-6)).to(dtype)
    return Strip(
        sure=sure,
        cap=cap,
        live=live.int(),
        start=start,
        threshold=threshold,
        hist=torch.zeros(len(threshold), dtype=torch.int32, device=device),
        fresh=torch.zeros(high - low, dtype=torch.int32, device=device),
        limit=limit,
        guess=guessed.int(),
    )


def ranks_of(strip: Strip) -> Array:
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


def unproven(strip: Strip, ranks: Array) -> Array:
    """Queries whose guess stands and whose next positive may still have a rank below the limit."""
    live, guess = strip.live.cpu().numpy(), strip.guess.cpu().numpy()
    suspects = np.flatnonzero((guess >= 0) & (live == guess))
    last = ranks[strip.start.cpu().numpy()[suspects] + live[suspects]]
    failed: Array = suspects[last + 1 < strip.limit.cpu().numpy()[suspects]]
    return failed


def _guess(
    task: Task, x: Frame, y: Frame, low: int, high: int, start: Tensor, threshold: Tensor
) -> Tensor:
    """The last positive of each query that is likely to have a rank below the limit.

    Where the limit-th neighbour lies is told from a sample of the gallery, three standard
    deviations on the safe side. Fewer points then lie below the last threshold followed.
    """
    device = start.device
    most = torch.full((high - low,), BEYOND, dtype=torch.int64, device=device)
    expected = task.limit[low:high] * (_SAMPLE / max(len(y), 1))
    rank = np.ceil(expected + _SAFETY * np.sqrt(expected)).astype(np.int64) + 1
    useful = np.flatnonzero((task.counts[low:high] >= _MANY) & (rank < _SAMPLE // 2))
    if len(y) < 4 * _SAMPLE or not len(useful):
        return most
    chosen = np.sort(np.random.default_rng(0).choice(len(y), _SAMPLE, replace=False))
    sample = y.at(torch.from_numpy(chosen).to(device)).kept()
    blocks = -(-len(useful) // _GUESS_ROWS)
    for block in range(blocks):
        q = useful[block::blocks]  # spread over all classes
        rows = torch.from_numpy(low + q).to(device)
        values = short_squares(x, rows, sample).cpu().numpy()
        first, last = (np.searchsorted(chosen, b[low + q]) for b in (task.own_low, task.own_high))
        there = torch.from_numpy(_at_rank(values, first, last, rank[q])).to(device)
        there += x.norms[rows]
        at = torch.from_numpy(q).to(device)
        place = first_at_least(threshold, start[:-1][at], start[1:][at], there.double())
        most[at] = (place - start[:-1][at] - 1).clamp(min=0)
        fewer = most[at] < start[1:][at] - start[:-1][at] - 1
        if block == 0 and float(fewer.double().mean()) < _PAYS:
            break  # the positives are near already: nothing to gain
    return most


def _at_rank(values: Array, first: Array, last: Array, rank: Array) -> Array:
    """For each row, which value has that 0-based rank, without columns `first[i] : last[i]`."""
    kernels = compiled.kernels
    if kernels is not None:
        found: Array = kernels.values_at_rank(values, first, last, rank)
        return found
    place = np.arange(values.shape[1])
    values[(place >= first[:, None]) & (place < last[:, None])] = np.inf
    values.partition(np.unique(rank), axis=1)
    return values[np.arange(len(values)), rank]


def first_at_least(values: Tensor, low: Tensor, high: Tensor, value: Tensor) -> Tensor:
    """First index in [low, high) whose value is at least `value`, else high; element by element."""
    low, high = low.clone(), high.clone()
    for _ in range(max(int((high - low).max()), 0).bit_length() if len(low) else 0):
        going = low < high
        middle = (low + high) // 2
        reached = values[middle.clamp(max=len(values) - 1)] >= value
        high = torch.where(going & reached, middle, high)
        low = torch.where(going & ~reached, middle + 1, low)
    return low


# Points made ready for exact ranking: their frame, class by class, and which rows are equal.

_CHUNK = 1 << 18  # coordinates looked at together


@dataclass(frozen=True, eq=False)
class RankedSet:
    """One set of points in the order of the ranking; positions are rows of the `frame`.

    `twin[i]` is equal for two positions only if their rows are equal.
    """

    frame: Frame
    twin: Tensor

    def __len__(self) -> int:
        return len(self.twin)

    def at(self, positions: Tensor) -> RankedSet:
        """Some of the points, as a set of its own."""
        return RankedSet(self.frame.at(positions), self.twin[positions])


def ranked_sets(
    sets: list[tuple[str, Tensor, Array]], *, normalize: bool, resident: bool
) -> list[RankedSet]:
    """Prepare `(name, rows, order)` sets about one common centre and scale.

    `resident` keeps the narrow copy of all points; otherwise tiles are converted as needed.
    """
    rows = [values for _, values, _ in sets]
    orders = [torch.from_numpy(order).to(values.device) for _, values, order in sets]
    frames = Frame.of_sets(
        rows, normalize=normalize, dtype=narrow_dtype(), resident=resident, orders=orders
    )
    for (name, _, _), frame in zip(sets, frames, strict=True):
        check_norms(frame, name)
    twins = _twins(rows)
    return [
        RankedSet(frame, torch.zeros_like(order) if frame.collapsed else twin[order])
        for frame, order, twin in zip(frames, orders, twins, strict=True)
    ]


def narrow_dtype() -> torch.dtype:
    """float32, unless the process allows float32 products to be rounded to fewer bits."""
    return torch.float32 if float32_is_exact() else torch.float64


def check_norms(frame: Frame, name: str) -> None:
    """Raise `InputError` for the first row of zeros, which has no direction."""
    if isinstance(frame.factor, Tensor) and not bool(frame.factor.all()):
        first = int((frame.factor == 0).nonzero()[0])
        raise InputError(name, f"zeros only in row {first}", "rows that have a norm")


def equal_rows(x: Tensor) -> Array:
    """A number for each row, equal only for equal rows.

    >>> number = equal_rows(torch.tensor([[1.0], [2.0], [1.0]]))
    >>> bool(number[0] == number[2]), bool(number[0] == number[1])
    (True, False)
    """
    found: Array = _twins([x])[0].cpu().numpy()
    return found


def _twins(sets: list[Tensor]) -> list[Tensor]:
    """A number for each row, equal only for equal rows: two collapsed points need no arithmetic."""
    sizes = [len(rows) for rows in sets]
    keys = torch.cat([_hashes(rows) for rows in sets]).cpu().numpy()
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    head, group = first[group], group.astype(np.int64)
    check = np.flatnonzero(head != np.arange(len(head)))
    for part in np.array_split(check, len(check) * sets[0].shape[1] // _CHUNK + 1):
        same = (_gather(sets, part) == _gather(sets, head[part])).all(1)
        bad = part[~same.cpu().numpy()]
        group[bad] = len(first) + bad  # two different rows with one hash
    return list(torch.split(torch.from_numpy(group).to(sets[0].device), sizes))


def _gather(sets: list[Tensor], index: Array) -> Tensor:
    """Rows of all sets by their number in the joined list."""
    out = sets[0].new_empty(len(index), sets[0].shape[1])
    low = 0
    for rows in sets:
        mine = torch.from_numpy((index >= low) & (index < low + len(rows)))
        out[mine] = rows[torch.from_numpy(index)[mine] - low]
        low += len(rows)
    return out


def _hashes(rows: Tensor) -> Tensor:
    bits = torch.int32 if rows.dtype == torch.float32 else torch.int64
    generator = torch.Generator().manual_seed(0)
    span = (1 << 62) - 1
    key = torch.randint(-span, span, (2, rows.shape[1]), generator=generator).to(rows.device) | 1
    out = torch.empty(len(rows), dtype=torch.int64, device=rows.device)
    kernels = compiled.kernels if on_host(rows) else None
    if kernels is not None:
        kernels.row_hashes(rows.contiguous().view(bits).numpy(), key.numpy(), out.numpy())
        return out
    step = max(1, _CHUNK // rows.shape[1])
    for low in range(0, len(rows), step):
        mixed = (rows[low : low + step].contiguous().view(bits).long() + key[0]) * key[1]
        out[low : low + step] = ((mixed ^ (mixed >> 31)) * key[0]).sum(1)
    return out
