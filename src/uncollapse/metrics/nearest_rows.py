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
from uncollapse.distances import Frame, screen_dtype, short_squares
from uncollapse.metrics.ranking import equal_rows, pieces

__all__ = ["Neighbours", "nearest"]

_ROWS, _COLUMNS = 512, 2048  # a tile of squared distances: 4 MB
_GROUP = 8  # columns whose least value stands for them where it is told how far a list reaches
_PAIRS = 1 << 20  # pairs sorted together
_COPY = 1 << 30  # bytes of a narrow copy of the gallery that is kept, at most


@dataclass(frozen=True)
class Neighbours:
    """`rows[q]` are the gallery rows nearest to query q, nearest first, at `distances[q]`."""

    rows: Tensor
    distances: Tensor


def nearest(
    queries: Tensor, gallery: Tensor, k: int, exclude: Tensor | None = None, *,
    normalize: bool = False, progress: ProgressOption = False,
) -> Neighbours:  # fmt: skip
    """The k nearest gallery rows of each query; `exclude[q]` is a row query q must not find.

    Ties go to the lower row. Rows of any float dtype, divided by their norms first with
    `normalize`; memory is a float32 copy of the gallery of at most 1 GB, and a few tiles.

    >>> near = nearest(torch.tensor([[0.0]]), torch.tensor([[3.0], [1.0], [2.0]]), k=2)
    >>> near.rows.tolist(), near.distances.tolist()
    ([[1, 2]], [[1.0, 2.0]])
    """
    room = len(gallery) - (exclude is not None)
    if check_int("k", k) > room:
        raise InputError("k", k, f"at most {room}, the size of the gallery")
    with progress_reporter(progress, "searching") as report:
        found = _search(
            queries, gallery, k + (exclude is not None), normalize, _COPY, report, farthest=False
        )
    rows, squares = found.rows, found.squares
    if exclude is not None:
        kept = _without(rows, exclude.cpu().numpy())
        rows, squares = rows[kept].reshape(-1, k), squares[kept].reshape(-1, k)
    dtype = torch.promote_types(torch.promote_types(queries.dtype, gallery.dtype), torch.float32)
    distances = torch.from_numpy(squares).sqrt_().mul_(found.unit).to(queries.device, dtype)
    return Neighbours(torch.from_numpy(rows).to(queries.device), distances)


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
    x: Tensor, k: int, *, normalize: bool, max_memory: int, report: Report, farthest: bool = False
) -> tuple[Array, Array]:
    """The k nearest rows of each row, itself first, and if asked for its `farthest` row.

    Ties go to the lower row; k is at most the number of rows.
    """
    found = _search(x, x, k, normalize, max_memory // 2, report, farthest)
    own = np.arange(len(x))
    others = found.rows[_without(found.rows, own)].reshape(len(x), k - 1)
    return np.concatenate([own[:, None], others], axis=1), found.farthest


@dataclass
class _Found:
    """Rows of the gallery, their squared distances in units, and the farthest row, of each query.

    A distance of 1 in these units is `unit`.
    """

    rows: Array
    squares: Array
    farthest: Array
    unit: float


def _search(
    queries: Tensor,
    gallery: Tensor,
    k: int,
    normalize: bool,
    copy: int,
    report: Report,
    farthest: bool,
) -> _Found:
    """The k nearest rows of each query; ties go to the lower row.

    Equal rows of the gallery are compared once, so that a collapsed set costs no more than any
    other. A narrow copy of the gallery is kept if it has at most `copy` bytes.
    """
    _, first, group = np.unique(equal_rows(gallery)[0], return_index=True, return_inverse=True)
    order = np.argsort(first)  # in the order of first rows, so that ties go to the lower row
    first, group = first[order], np.argsort(order)[group]
    dtype = screen_dtype()
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
    found = _Found(
        np.empty((len(x), size), np.int64),
        np.empty((len(x), size)),
        np.empty(len(x) if farthest else 0, np.int64),
        float(x.unit),
    )
    for low in range(0, len(x), _ROWS):
        block = slice(low, min(low + _ROWS, len(x)))
        _search_block(x, block, y, size, found)
        report(block.stop, len(x))
    found.farthest = first[found.farthest]
    if len(first) < len(gallery):
        found.rows, found.squares = _with_copies(found.rows, found.squares, group, k)
    return found


def _search_block(x: Frame, block: slice, y: Frame, k: int, found: _Found) -> None:
    """Fill in the lists of some queries."""
    rows = x.at(block).kept()
    doubt = 2 * rows.band.cpu().numpy()[:, None]
    near, far = _Least(len(rows), k, doubt), _Least(len(rows), 1, doubt)
    buffer = rows.norms.new_empty(_ROWS * _COLUMNS)
    for left in range(0, len(y), _COLUMNS):
        part = slice(left, min(left + _COLUMNS, len(y)))
        out = buffer[: len(rows) * (part.stop - left)].view(len(rows), -1)
        tile = short_squares(rows, slice(None), y, part, out=out).cpu().numpy()
        band = y.band[part].cpu().numpy()
        near.add(tile, band, left)
        if len(found.farthest):
            far.add(-tile, band, left)
    for i, j in near.pairs():
        square = pair_squares(rows, i, j, y)
        order = np.lexsort((j, square, i))
        some = slice(block.start + i[0], block.start + i[-1] + 1)
        begin = np.searchsorted(i, np.arange(i[0], i[-1] + 1))
        chosen = order[begin[:, None] + np.arange(k)]
        found.rows[some], found.squares[some] = j[chosen], square[chosen]
    for i, j in far.pairs() if len(found.farthest) else ():
        order = np.lexsort((j, -pair_squares(rows, i, j, y), i))
        begin = np.searchsorted(i, np.arange(i[0], i[-1] + 1))
        found.farthest[block.start + i[0] : block.start + i[-1] + 1] = j[order[begin]]


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

    def pairs(self) -> list[tuple[Array, Array]]:
        """Rows and columns of what is left, rows ascending; some rows at a time."""
        i, j, lower = (np.concatenate(part) for part in zip(*self.entries, strict=True))
        kept = lower <= (self.upper[:, -1:] + self.doubt)[i, 0]
        i, j = i[kept], j[kept]
        order = np.argsort(i, kind="stable")
        i, j = i[order], j[order]
        ends = np.cumsum(np.r_[0, np.bincount(i, minlength=len(self.upper))])
        parts = pieces(np.diff(ends), _PAIRS)
        cuts = [slice(ends[part.start], ends[part.stop]) for part in parts]
        return [(i[cut], j[cut]) for cut in cuts]


def pair_squares(frame: Frame, i: Array, j: Array, other: Frame | None = None) -> Array:
    """Exact squared distances of the rows i to the rows j (of `other`), one for each pair."""
    device = frame.norms.device
    a, b = (torch.from_numpy(index).to(device) for index in (i, j))
    squares: Array = frame.squares(a, b, other).cpu().numpy()
    return squares


def _with_copies(lists: Array, squares: Array, group: Array, k: int) -> tuple[Array, Array]:
    """Lists of groups of equal rows as lists of k rows; ties go to the lower row."""
    members = np.argsort(group, kind="stable")
    sizes = np.bincount(group)
    begin, taken = np.cumsum(sizes) - sizes, np.minimum(sizes, k)
    rows, apart = np.empty((len(lists), k), np.int64), np.empty((len(lists), k))
    for piece in pieces(taken[lists].sum(axis=1), _PAIRS):
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
