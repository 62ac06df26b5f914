"""Nearest neighbours of queries in an embedded gallery, exact.

Tiles of squared distances come from float32 products, and what is near is measured by float64
differences.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array, points
from uncollapse._base.check import InputError, check_int
from uncollapse._base.progress import ProgressOption, Report, progress_reporter
from uncollapse.distances import Frame, screen_dtype
from uncollapse.metrics.ranking import (
    BLOCK,
    PAIRS,
    check_directions,
    equal_rows,
    nearest_pairs,
    pieces,
)

_COPY = 1 << 30  # bytes of a narrow copy of the gallery that is kept, at most


@dataclass(frozen=True)
class Neighbours:
    """`rows[q]` are the gallery rows nearest to query q, nearest first, at `distances[q]`."""

    rows: Tensor
    distances: Tensor


def nearest(
    queries: Tensor, gallery: Tensor, k: int, exclude: Tensor | None = None, *,
    normalize: bool = False, max_memory: int | None = None, progress: ProgressOption = False,
) -> Neighbours:  # fmt: skip
    """The k nearest gallery rows of each query; `exclude[q]` is a row query q must not find.

    Ties go to the lower row. Rows of any float dtype, divided by their norms first with
    `normalize`; memory is a float32 copy of the gallery of at most 1 GB (a quarter for
    fewer queries than that), and a few tiles.

    >>> near = nearest(torch.tensor([[0.0]]), torch.tensor([[3.0], [1.0], [2.0]]), k=2)
    >>> near.rows.tolist(), near.distances.tolist()
    ([[1, 2]], [[1.0, 2.0]])
    """
    room = len(gallery) - (exclude is not None)
    if check_int("k", k) > room:
        raise InputError("k", k, f"at most {room}, the size of the gallery")
    if normalize:
        check_directions(queries, gallery)
    wanted = k + (exclude is not None)
    with progress_reporter(progress, "searching") as report:
        rows, squares, _, unit = _search(queries, gallery, wanted, normalize, max_memory, report)
    if exclude is not None:
        kept = _without(rows, exclude.cpu().numpy())
        rows, squares = rows[kept].reshape(-1, k), squares[kept].reshape(-1, k)
    dtype = torch.promote_types(torch.promote_types(queries.dtype, gallery.dtype), torch.float32)
    distances = torch.from_numpy(squares).sqrt_().mul_(unit).to(queries.device, dtype)
    return Neighbours(torch.from_numpy(rows).to(queries.device), distances)


def nearest_of(x: Tensor, queries: Array, k: int) -> Array:
    """The k nearest rows of each query among all others."""
    rows = torch.from_numpy(queries)
    return nearest(x[rows], x, k, exclude=rows).rows.numpy()


def near_lists(
    x: Tensor, k: int, *, normalize: bool, max_memory: int, report: Report
) -> tuple[Array, Array]:
    """The k nearest rows of each row, itself first, and its farthest row.

    Ties go to the lower row; k is at most the number of rows.
    """
    rows, _, far, _ = _search(x, x, k, normalize, max_memory, report, farthest=True)
    own = np.arange(len(x))
    others = rows[_without(rows, own)].reshape(len(x), k - 1)
    return np.concatenate([own[:, None], others], axis=1), far


def _search(
    queries: Tensor,
    gallery: Tensor,
    k: int,
    normalize: bool,
    max_memory: int | None,
    report: Report,
    farthest: bool = False,
) -> tuple[Array, Array, Array, float]:
    """The k nearest rows of each query, their squared distances, the farthest row, and the unit.

    Ties go to the lower row. A distance is the root of its square times the unit.

    Equal rows of the gallery are compared once, so that a collapsed set costs no more than any
    other. A narrow copy of the gallery is kept if it has at most half of `max_memory` bytes.
    """
    _, first, group = np.unique(equal_rows(gallery)[0], return_index=True, return_inverse=True)
    order = np.argsort(first)  # in the order of first rows, so that ties go to the lower row
    first, group = first[order], np.argsort(order)[group]
    dtype = screen_dtype()
    copy = _COPY if max_memory is None else max_memory // 2
    copy = copy if len(queries) >= len(gallery) else copy // 4  # few queries read it a few times
    resident = len(first) * gallery.shape[1] * torch.finfo(dtype).bits // 8 <= copy
    orders = [torch.arange(len(queries)), torch.from_numpy(first)]
    x, y = Frame.of_sets(
        [queries.detach(), gallery.detach()],
        normalize=normalize,
        dtype=dtype,
        resident=False,
        orders=[order.to(queries.device) for order in orders],
    )
    if not bool(torch.isfinite(y.norms).all() & torch.isfinite(x.norms).all()):
        points(queries, "queries"), points(gallery, "gallery")  # one of them raises, naming rows
    y = y.kept() if resident else y
    size = min(k, len(first))
    rows, squares = np.empty((len(x), size), np.int64), np.empty((len(x), size))
    ends = np.empty(len(x) if farthest else 0, np.int64)
    for low in range(0, len(x), BLOCK):
        block = slice(low, min(low + BLOCK, len(x)))
        near, far = nearest_pairs(x.at(block).kept(), y, size, farthest=farthest)
        rows[block], squares[block] = near
        if far is not None:
            ends[block] = far[0][:, 0]
        report(block.stop, len(x))
    if len(first) < len(gallery):
        rows, squares = _with_copies(rows, squares, group, k)
    return rows, squares, first[ends], float(x.unit)


def _with_copies(lists: Array, squares: Array, group: Array, k: int) -> tuple[Array, Array]:
    """Lists of groups of equal rows as lists of k rows; ties go to the lower row."""
    members = np.argsort(group, kind="stable")
    sizes = np.bincount(group)
    begin, taken = np.cumsum(sizes) - sizes, np.minimum(sizes, k)
    rows, apart = np.empty((len(lists), k), np.int64), np.empty((len(lists), k))
    for piece in pieces(taken[lists].sum(axis=1), PAIRS):
        near = lists[piece].ravel()
        counts = taken[near]
        offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        copies = members[np.repeat(begin[near], counts) + offset]
        square = np.repeat(squares[piece].ravel(), counts)
        owner = np.repeat(np.repeat(np.arange(len(lists[piece])), lists.shape[1]), counts)
        order = np.lexsort((copies, square, owner))
        ends = np.searchsorted(owner, np.arange(len(lists[piece])))
        chosen = order[ends[:, None] + np.arange(k)]
        rows[piece], apart[piece] = copies[chosen], square[chosen]
    return rows, apart


def _without(lists: Array, row: Array) -> Array:
    """Which entries stay when each list loses a row: this one or, if it lacks it, its last."""
    kept = lists != row[:, None]
    kept[kept.all(axis=1), -1] = False
    return np.asarray(kept)
