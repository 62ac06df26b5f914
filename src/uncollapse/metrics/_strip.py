"""Queries ranked together: the thresholds of their positives, and what is known so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array
from uncollapse._base.extras import compiled
from uncollapse.distances import Frame
from uncollapse.distances.tiles import short_squares
from uncollapse.metrics._task import Task

__all__ = [
    "BEYOND",
    "TIES",
    "Strip",
    "first_at_least",
    "open_strip",
    "ranks_of",
    "tie_thresholds",
    "unproven",
]

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
