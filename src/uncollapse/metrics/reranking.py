"""Re-ranking with k-reciprocal encoding (Zhong et al., CVPR 2017), without a distance matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike
from uncollapse._base.check import InputError, check_bool, check_int, check_number
from uncollapse._base.progress import ProgressOption, progress_reporter
from uncollapse.distances import Frame, short_squares, working_dtype
from uncollapse.metrics.nearest_rows import Neighbours, near_lists
from uncollapse.metrics.ranking import (
    Comparison,
    RankBlock,
    check_directions,
    pair_squares,
    parse_bytes,
    pieces,
    two_sets,
)

Sparse = Any  # a scipy.sparse array
_ROWS = 1024  # rows whose sets are made together
_PAIRS = 1 << 19  # entries compared together
_TILE = 256  # gallery rows converted at a time, at least
_VALUES = 1 << 20  # values of them: 8 MB
_TIE = 1e-12  # re-ranked distances, which are at most 1, that differ by less are equal


@dataclass(frozen=True)
class ReRanking:
    """Settings of `rerank`: the paper's letters and its values for Market-1501.

    `k1` neighbours are asked whether they are mutual, the encodings of `k2` rows (a row and its
    nearest) are averaged, and `lambda_value` is the weight of the original distance.
    """

    k1: int = 20
    k2: int = 6
    lambda_value: float = 0.3

    def __post_init__(self) -> None:
        check_int("k1", self.k1)
        check_int("k2", self.k2)
        check_number("lambda_value", self.lambda_value, 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class ReRanked:
    """Queries and a gallery; re-ranked distances are computed on request, a block at a time.

    `len()` is the number of queries, `gallery_size` that of the gallery's rows.
    """

    settings: ReRanking
    gallery_size: int
    block_rows: int
    _frame: Frame
    _farthest: Array
    _queries: Any  # CSR: the encodings of the queries
    _columns: Any  # CSC: those of the gallery

    def __len__(self) -> int:
        return len(self._frame) - self.gallery_size

    def distances(self, rows: ArrayLike | slice = slice(None)) -> Tensor:
        """`[b, G]` float64 distances of some queries to the whole gallery, on the CPU.

        All queries by default: the whole matrix, which `blocks` and `nearest` never hold.
        """
        chosen = np.arange(len(self))[rows if isinstance(rows, slice) else np.asarray(rows)]
        weight = self.settings.lambda_value
        # Jaccard: 1 - Σmin/Σmax of two encodings, each of which adds up to 1, from Σmin (10).
        shared = _min_sums(self._queries[chosen], self._columns)
        total = np.subtract(2.0, shared)
        shared /= total
        mixed = np.subtract(1.0, shared, out=shared)
        mixed *= 1 - weight
        mixed += self._original(chosen, weight)  # (12)
        return torch.from_numpy(mixed)

    def blocks(self, order: Array | None = None) -> Iterator[tuple[slice, Tensor]]:
        """Yield some queries at a time, of an order of all, with their distances."""
        rows = np.arange(len(self)) if order is None else order
        for low in range(0, len(self), self.block_rows):
            part = slice(low, min(low + self.block_rows, len(self)))
            yield part, self.distances(rows[part])

    def nearest(self, k: int, *, progress: ProgressOption = False) -> Neighbours:
        """The first k gallery rows of each query in the new order; ties go to the lower row."""
        if check_int("k", k) > self.gallery_size:
            raise InputError("k", k, f"at most {self.gallery_size}, the size of the gallery")
        rows = torch.empty(len(self), k, dtype=torch.int64)
        distances = torch.empty(len(self), k, dtype=torch.float64)
        with progress_reporter(progress, "re-ranked neighbours") as report:
            for part, block in self.blocks():
                ordered = block.sort(dim=1, stable=True)
                rows[part], distances[part] = ordered.indices[:, :k], ordered.values[:, :k]
                report(part.stop, len(self))
        return Neighbours(rows, distances)

    def _original(self, rows: Array, weight: float) -> Array:
        """`weight` times the squared distances to the gallery over each row's `_farthest`."""
        frame, first = self._frame, len(self)
        i = torch.from_numpy(rows).to(frame.norms.device)
        scale = weight / self._farthest[rows][:, None]
        original = np.empty((len(rows), self.gallery_size))
        tile = max(_TILE, _VALUES // frame.dim)
        for low in range(first, len(frame), tile):
            part = slice(low, min(low + tile, len(frame)))
            square = short_squares(frame, i, j=part).add_(frame.norms[i][:, None])
            some = square.clamp_(min=0.0).cpu().numpy()
            np.multiply(some, scale, out=original[:, low - first : part.stop - first])
        return original


def rerank(
    queries: ArrayLike,
    gallery: ArrayLike,
    *,
    k1: int = 20,
    k2: int = 6,
    lambda_value: float = 0.3,
    normalize: bool = False,
    max_memory: int | str | None = "256MB",
    progress: ProgressOption = None,
) -> ReRanked:
    """Re-rank a gallery for each query: rows that share mutual neighbours with it come forward.

    The distance is (1 - λ) Jaccard + λ original. The original one is the squared Euclidean distance
    over the largest of the query's, as in the authors' code. The Jaccard distance compares the sets
    of mutual `k1`-neighbours, extended by those of `k1`/2, among queries and gallery together: it
    needs no labels, and depends on the other queries.

    The same numbers as the authors' code, which has them to float32's rounding, without its matrix
    of all rows by all rows: neighbour lists come from blocks and are exact, as in `retrieval`; the
    encodings are sparse. `max_memory` bounds the blocks. A copy of all rows and their encodings,
    about 10 `k1` `k2` bytes per row, come on top.

    >>> rng = np.random.default_rng(0)
    >>> people = np.repeat(rng.normal(size=(5, 8)), 12, axis=0) + rng.normal(size=(60, 8)) / 3
    >>> ranked = rerank(people[::12], people[1::2], k1=6, k2=3)  # 5 queries, 6 rows per person
    >>> ranked.nearest(2).rows.tolist()
    [[1, 4], [6, 9], [16, 15], [18, 19], [25, 24]]
    >>> ranked.distances([0]).shape
    torch.Size([1, 30])
    """
    settings = ReRanking(k1, k2, lambda_value)
    budget = parse_bytes(max_memory) or 1 << 28
    x, y = two_sets(queries, gallery)
    if check_bool("normalize", normalize):
        check_directions(x, y)
    points = torch.cat([x, y])
    n = len(points)
    frame = Frame.of(points, normalize=normalize, dtype=working_dtype(points), resident=False)
    whole, half = (min(k + 1, n) for k in (k1, round(k1 / 2)))
    with progress_reporter(progress, "re-ranking") as report:
        most = max(whole, min(k2, n))
        lists, far = near_lists(points, most, normalize=normalize, max_memory=budget, report=report)
    farthest = pair_squares(frame, np.arange(n), far)
    farthest[farthest == 0] = 1.0  # one point only: all distances are 0
    sets = _expanded(_k_reciprocal(lists[:, :whole]), _k_reciprocal(lists[:, :half]))
    v = _weighted(sets, frame, farthest)
    if k2 > 1:
        # Local query expansion, (11): of each row the mean of v over its list, itself included.
        near = lists[:, :k2]
        v = _by_blocks(_members(near) * (1 / near.shape[1]), lambda share: share @ v)
    rows = max(1, min(len(x), budget // (16 * 8 * len(y))))
    return ReRanked(settings, len(y), rows, frame, farthest, v[: len(x)], v[len(x) :].tocsc())


def reranked_ranks(
    task: Comparison, settings: ReRanking, *, ties: str, progress: ProgressOption, **options: Any
) -> Iterator[RankBlock]:
    """`positive_ranks` in the order of the re-ranked distances; `options` are those of `rerank`."""
    assert task.gallery is not None
    ranked = rerank(task.queries, task.gallery, **vars(settings), progress=progress, **options)
    slack = _TIE if ties == "pessimistic" else -_TIE
    with progress_reporter(progress, "re-ranked order") as report:
        for part, distances in ranked.blocks(task.query_order):
            block = distances.numpy()[:, task.gallery_order]
            ranks = [_ranks(task, q, row, slack) for q, row in enumerate(block, part.start)]
            start = np.r_[0, np.cumsum(task.counts[part])]
            yield part.start, part.stop, start, np.concatenate(ranks)
            report(part.stop, len(ranked))


def _ranks(task: Comparison, q: int, row: Array, slack: float) -> Array:
    """0-based ranks of a query's positives: nearer positives plus nearer negatives."""
    own = slice(task.own_low[q], task.own_high[q])
    positives = np.sort(row[own][task.gallery_skip[own] != task.query_skip[q]])
    negatives = np.sort(np.concatenate([row[: own.start], row[own.stop :]]))
    before = np.searchsorted(negatives, positives + slack, side="right")
    return np.add(before, np.arange(len(positives)))


# The encoding of rows as sparse vectors: Zhong et al. 2017, sections 3.2 to 3.4.


def _k_reciprocal(lists: Array) -> Sparse:
    """R(i), (3): row i has ones for the rows of its list that have i in their own list.

    >>> _k_reciprocal(np.array([[0, 1], [1, 0], [2, 1]])).toarray().tolist()
    [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """
    member = _members(lists).astype(np.int32)
    both = member.multiply(member.T).tocsr()
    both.sort_indices()
    return both


def _expanded(whole: Sparse, half: Sparse) -> Sparse:
    """R*(i), (4): R(i, k) with R(c, k/2) of each c in it that shares more than 2/3 of that with it.

    >>> from scipy.sparse import csr_array
    >>> whole = csr_array(np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]]))
    >>> half = csr_array(np.array([[1, 0, 0], [0, 1, 1], [0, 1, 1]]))
    >>> _expanded(whole, half).toarray().tolist()  # row 0 has half of rows 1 and 2: too little
    [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    """
    sizes = np.diff(half.indptr)

    def expand(own: Sparse) -> Sparse:
        shared = own.multiply(own @ half.T).tocsr()
        shared.data = (3 * shared.data > 2 * sizes[shared.indices]).astype(shared.dtype)
        shared.eliminate_zeros()
        sets = (own + shared @ half).tocsr()
        sets.data[:] = 1
        return sets

    return _by_blocks(whole, expand)


def _weighted(sets: Sparse, frame: Frame, farthest: Array) -> Sparse:
    """V, (7): exp(-d) of the members of each set, over their sum.

    d is the squared distance over the largest of the row, as in the authors' code.
    """
    v = sets.astype(np.float64)
    owner = np.repeat(np.arange(v.shape[0]), np.diff(v.indptr))
    values = np.empty(len(owner))
    for low in range(0, len(owner), _PAIRS):
        part = slice(low, low + _PAIRS)
        square = pair_squares(frame, owner[part], v.indices[part].astype(np.int64))
        values[part] = np.exp(-square / farthest[owner[part]])
    # No set is empty: each row is in its own.
    values /= np.add.reduceat(values, v.indptr[:-1])[owner]
    v.data = values
    return v


def _min_sums(asking: Sparse, columns: Sparse) -> Array:
    """Σ_c min(v_qc, v_gc), (10), of a few rows q with all rows g, which come by column (CSC).

    >>> from scipy.sparse import csr_array
    >>> rows = csr_array(np.array([[0.5, 0.5, 0.0], [0.0, 0.25, 0.75]]))
    >>> _min_sums(rows[[0]], rows.tocsc()).tolist()
    [[1.0, 0.25]]
    """
    count, size = asking.shape[0], columns.shape[0]
    owner = np.repeat(np.arange(count), np.diff(asking.indptr)).astype(np.int64)
    begin = columns.indptr[asking.indices].astype(np.int64)
    lengths = columns.indptr[asking.indices + 1] - begin
    total = np.zeros(count * size)
    for piece in pieces(lengths, _PAIRS):
        many = lengths[piece]
        shift = begin[piece] - (np.cumsum(many) - many)
        entry = np.repeat(shift, many) + np.arange(many.sum())
        least = np.minimum(np.repeat(asking.data[piece], many), columns.data[entry])
        # Entries of one row q follow each other: only the rows between need to be added up.
        first, last = owner[piece][0], owner[piece][-1] + 1
        at = np.repeat((owner[piece] - first) * size, many) + columns.indices[entry]
        sums = np.bincount(at, weights=least, minlength=(last - first) * size)
        total[first * size : last * size] += sums
    return total.reshape(count, size)


def _members(lists: Array) -> Sparse:
    """`[n, n]`: ones where a row is in another's list."""
    from scipy.sparse import csr_array  # which takes longer to load than all of metrics

    n, k = lists.shape
    starts = np.arange(0, n * k + 1, k)
    members = csr_array((np.ones(n * k), lists.flatten(), starts), shape=(n, n))
    members.sort_indices()
    return members


def _by_blocks(rows: Sparse, change: Callable[[Sparse], Sparse]) -> Sparse:
    """Apply the change to some rows at a time."""
    from scipy.sparse import vstack

    starts = range(0, rows.shape[0], _ROWS)
    return vstack([change(rows[low : low + _ROWS]) for low in starts], format="csr")
