"""k-reciprocal encoding of rows as sparse vectors: Zhong et al. 2017, sections 3.2 to 3.4."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from uncollapse._base.arrays import Array
from uncollapse.distances import Frame
from uncollapse.metrics._near_lists import pieces

__all__ = ["expanded", "k_reciprocal", "min_sums", "neighbour_means", "weighted"]

Sparse = Any  # a scipy.sparse array
_ROWS = 1024  # rows whose sets are made together
_PAIRS = 1 << 19  # entries compared together


def k_reciprocal(lists: Array) -> Sparse:
    """R(i), (3): the rows of list i in whose own list i is, as ones of row i.

    >>> k_reciprocal(np.array([[0, 1], [1, 0], [2, 1]])).toarray().tolist()
    [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """
    member = _members(lists, 1, np.int32)
    both = member.multiply(member.T).tocsr()
    both.sort_indices()
    return both


def expanded(whole: Sparse, half: Sparse) -> Sparse:
    """R*(i), (4): R(i, k) with R(c, k/2) of each c in it that shares more than 2/3 of that with it.

    >>> from scipy.sparse import csr_array
    >>> whole = csr_array(np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]]))
    >>> half = csr_array(np.array([[1, 0, 0], [0, 1, 1], [0, 1, 1]]))
    >>> expanded(whole, half).toarray().tolist()  # of rows 1 and 2 the first has a half: too little
    [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    """
    sizes = np.diff(half.indptr)
    parts = []
    for low in range(0, whole.shape[0], _ROWS):
        mine = whole[low : low + _ROWS]
        shared = mine.multiply(mine @ half.T).tocsr()
        shared.data = (3 * shared.data > 2 * sizes[shared.indices]).astype(shared.dtype)
        shared.eliminate_zeros()
        sets = (mine + shared @ half).tocsr()
        sets.data[:] = 1
        parts.append(sets)
    return _stacked(parts)


def weighted(sets: Sparse, frame: Frame, farthest: Array) -> Sparse:
    """V, (7): exp(-d) of the members of each set, over their sum.

    d is the squared distance over the largest of the row, as in the authors' code.
    """
    owner = np.repeat(np.arange(sets.shape[0]), np.diff(sets.indptr))
    values = np.empty(len(owner))
    device = frame.norms.device
    for low in range(0, len(owner), _PAIRS):
        part = slice(low, low + _PAIRS)
        i, j = (torch.from_numpy(a[part].astype(np.int64)) for a in (owner, sets.indices))
        square = frame.squares(i.to(device), j.to(device)).cpu().numpy()
        values[part] = np.exp(-square / farthest[owner[part]])
    # No set is empty: each row is in its own.
    values /= np.add.reduceat(values, sets.indptr[:-1])[owner]
    return _csr(values, sets.indices, sets.indptr, sets.shape)


def neighbour_means(v: Sparse, lists: Array) -> Sparse:
    """Local query expansion, (11): of each row the mean of v over its list, itself included."""
    share = _members(lists, 1 / lists.shape[1], np.float64)
    parts = [share[low : low + _ROWS] @ v for low in range(0, v.shape[0], _ROWS)]
    return _stacked(parts)


def min_sums(asking: Sparse, columns: Sparse) -> Array:
    """Σ_c min(v_qc, v_gc), (10), of a few rows q with all rows g, which come by column (CSC).

    >>> from scipy.sparse import csr_array
    >>> rows = csr_array(np.array([[0.5, 0.5, 0.0], [0.0, 0.25, 0.75]]))
    >>> min_sums(rows[[0]], rows.tocsc()).tolist()
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
        place = np.repeat(shift, many) + np.arange(many.sum())
        least = np.minimum(np.repeat(asking.data[piece], many), columns.data[place])
        # Entries of one row q follow each other: only the rows between need to be added up.
        first, last = owner[piece][0], owner[piece][-1] + 1
        at = np.repeat((owner[piece] - first) * size, many) + columns.indices[place]
        found = np.bincount(at, weights=least, minlength=(last - first) * size)
        total[first * size : last * size] += found
    return total.reshape(count, size)


def _members(lists: Array, value: float, dtype: type) -> Sparse:
    n, k = lists.shape
    data = np.full(n * k, value, dtype)
    found = _csr(data, lists.ravel(), np.arange(0, n * k + 1, k), (n, n))
    found.sort_indices()
    return found


def _csr(data: Array, indices: Array, indptr: Array, shape: tuple[int, int]) -> Sparse:
    from scipy.sparse import csr_array  # which takes longer to load than all of metrics

    return csr_array((data, indices, indptr), shape=shape)


def _stacked(parts: list[Sparse]) -> Sparse:
    from scipy.sparse import vstack

    return vstack(parts, format="csr")
