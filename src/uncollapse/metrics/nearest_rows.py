"""Nearest neighbours of queries in an embedded gallery, exact."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array
from uncollapse._base.check import InputError, check_int
from uncollapse._base.progress import ProgressOption, Report, progress_reporter
from uncollapse.distances import Frame, pairwise_distances, screen_dtype, short_squares
from uncollapse.metrics.ranking import equal_rows, pieces

__all__ = ["Neighbours", "nearest"]

_BLOCK = 256
_GROUPS = 512  # the least value of so many groups of columns tells where the nearest rows end
_TILE = 256  # rows converted at a time where no copy is kept, at least
_VALUES = 1 << 20  # of their values, at most: 8 MB
_PAIRS = 1 << 20  # pairs sorted together


@dataclass(frozen=True)
class Neighbours:
    """`rows[q]` are the gallery rows nearest to query q, nearest first, at `distances[q]`."""

    rows: Tensor
    distances: Tensor


def nearest(
    queries: Tensor, gallery: Tensor, k: int, exclude: Tensor | None = None, *,
    progress: ProgressOption = False,
) -> Neighbours:  # fmt: skip
    """The k nearest gallery rows of each query; `exclude[q]` is a row query q must not find.

    Ties go to the lower row.

    >>> near = nearest(torch.tensor([[0.0]]), torch.tensor([[3.0], [1.0], [2.0]]), k=2)
    >>> near.rows.tolist(), near.distances.tolist()
    ([[1, 2]], [[1.0, 2.0]])
    """
    room = len(gallery) - (exclude is not None)
    if check_int("k", k) > room:
        raise InputError("k", k, f"at most {room}, the size of the gallery")
    parts = []
    with progress_reporter(progress, "searching") as report:
        for start in range(0, len(queries), _BLOCK):
            block = pairwise_distances(queries[start : start + _BLOCK], gallery)
            if exclude is not None:
                chosen = exclude[start : start + _BLOCK]
                block[torch.arange(len(block)), chosen] = torch.inf
            order = first_columns(block, k)
            parts.append((order, block.gather(1, order)))
            report(min(start + _BLOCK, len(queries)), len(queries))
    rows, distances = (torch.cat(part) for part in zip(*parts, strict=True))
    return Neighbours(rows, distances)


def first_columns(block: Tensor, k: int) -> Tensor:
    """Columns of the k smallest values of each row, in order; ties go to the lower column."""
    columns = torch.topk(block, k, dim=1, largest=False).indices.sort(dim=1).values
    columns = columns.gather(1, torch.argsort(block.gather(1, columns), dim=1, stable=True))
    # Where others equal the last one, topk may have chosen any of them.
    last = block.gather(1, columns[:, -1:])
    tied = ((block <= last).sum(dim=1) > k).nonzero().flatten()
    if len(tied):
        columns[tied] = torch.argsort(block[tied], dim=1, stable=True)[:, :k]
    return columns


def near_lists(
    x: Tensor, k: int, *, normalize: bool, max_memory: int, report: Report
) -> tuple[Array, Array]:
    """The k nearest rows of each row, itself first, and its farthest row.

    Ties go to the lower row; k is at most the number of rows. Equal rows are compared once, so that
    a collapsed set costs no more than any other.
    """
    _, first, group = np.unique(equal_rows(x)[0], return_index=True, return_inverse=True)
    if len(first) == len(x):
        return _of_different(x, k, normalize, max_memory, report)[:2]
    # In the order of their first rows, so that among groups too ties go to the lower row.
    order = np.argsort(first)
    first, group = first[order], np.argsort(order)[group]
    some = x[torch.from_numpy(first).to(x.device)]
    lists, farthest, squares = _of_different(some, min(k, len(some)), normalize, max_memory, report)
    lists = _with_copies(lists, squares, group, k)
    return _itself_first(lists[group]), first[farthest[group]]


def _of_different(
    x: Tensor, k: int, normalize: bool, max_memory: int, report: Report
) -> tuple[Array, Array, Array]:
    """The lists, the farthest rows, and the squared distances in the lists."""
    n, width = x.shape
    dtype = screen_dtype()
    item = torch.finfo(dtype).bits // 8
    frame = Frame.of(
        x, normalize=normalize, dtype=dtype, resident=4 * item * n * width <= max_memory
    )
    tile = n if frame.z is not None else max(_TILE, _VALUES // width)
    groups = min(n, max(_GROUPS, 4 * k))
    padded = -(-n // groups) * groups
    step = min(n, max(16, max_memory // (8 * item * padded)))
    buffer = torch.empty(step, padded, dtype=dtype, device=x.device)
    band = frame.band.cpu().numpy()
    rows, squares = np.empty((n, k), np.int32), np.empty((n, k))
    farthest = np.empty(n, np.int64)
    for low in range(0, n, step):
        high = min(low + step, n)
        block = buffer[: high - low]
        for left in range(0, n, tile):
            part = slice(left, min(left + tile, n))
            short_squares(frame, slice(low, high), j=part, out=block[:, part])
        block[:, n:] = torch.inf
        values = block.cpu().numpy()
        # A value is right to `band[i] + band[j]`, and so is the bound it is compared with.
        doubt = 2 * (band[low:high] + band.max())
        least = values.reshape(len(values), -1, groups).min(axis=1)
        near = np.partition(least, k - 1, axis=1)[:, k - 1] + doubt
        for here, i, j in _marked(values <= near[:, None], low):
            square = pair_squares(frame, i, j)
            order = np.lexsort((j, square, j != i, i))
            begin = np.searchsorted(i, np.arange(here.start, here.stop))
            chosen = order[begin[:, None] + np.arange(k)]
            rows[here], squares[here] = j[chosen], square[chosen]
        values = values[:, :n]
        far = values.max(axis=1) - doubt
        for here, i, j in _marked(values >= far[:, None], low):
            order = np.lexsort((-j, pair_squares(frame, i, j), i))
            last = np.searchsorted(i, np.arange(here.start, here.stop), side="right") - 1
            farthest[here] = j[order[last]]
        report(high, n)
    return rows, farthest, squares


def _marked(mask: Array, low: int) -> Iterator[tuple[slice, Array, Array]]:
    """Rows and columns marked in a mask whose first row is `low`, a few rows at a time."""
    for piece in pieces(mask.sum(axis=1), _PAIRS):
        i, j = np.divmod(np.flatnonzero(mask[piece]), mask.shape[1])  # in half of nonzero's time
        i += low + piece.start
        yield slice(low + piece.start, low + piece.stop), i, j


def pair_squares(frame: Frame, i: Array, j: Array) -> Array:
    """Exact squared distances of the rows i to the rows j, one for each pair."""
    device = frame.norms.device
    a, b = (torch.from_numpy(index).to(device) for index in (i, j))
    squares: Array = frame.squares(a, b).cpu().numpy()
    return squares


def _with_copies(lists: Array, squares: Array, group: Array, k: int) -> Array:
    """Lists of groups of equal rows as lists of k rows; ties go to the lower row."""
    members = np.argsort(group, kind="stable")
    begin = np.searchsorted(group[members], np.arange(len(lists)))
    taken = np.minimum(np.bincount(group, minlength=len(lists)), k)
    whole = np.empty((len(lists), k), np.int32)
    for piece in pieces(taken[lists].sum(axis=1), _PAIRS):
        near = lists[piece].ravel()
        counts = taken[near]
        offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = members[np.repeat(begin[near], counts) + offset]
        owner = np.repeat(np.repeat(np.arange(len(lists[piece])), lists.shape[1]), counts)
        order = np.lexsort((rows, np.repeat(squares[piece].ravel(), counts), owner))
        ends = np.searchsorted(owner, np.arange(len(lists[piece])))
        whole[piece] = rows[order[ends[:, None] + np.arange(k)]]
    return whole


def _itself_first(lists: Array) -> Array:
    """Each list with its own row in front; if it was not in the list, the last entry is dropped."""
    own = np.arange(len(lists), dtype=lists.dtype)[:, None]
    joined = np.concatenate([own, lists], axis=1)
    spare = joined == own
    spare[:, 0] = False
    spare[~spare.any(axis=1), -1] = True
    return np.reshape(joined[~spare], lists.shape)
