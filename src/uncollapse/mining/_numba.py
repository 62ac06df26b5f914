"""The common choices in one pass over a block of products, where numba is installed.

For small batches the time goes into calling, not computing: here are two calls in place of forty.
As in `_search`, whoever is within the rounding error of the winner is measured by direct
differences; rows where that is a crowd are only marked, for `_search` to decide.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

__all__ = ["centre", "choose"]

Array = np.ndarray[Any, Any]

_CROWD = 16  # measured at most in a row
_NONE, _MANY = -1, -2
_CHUNK = 64
_INFINITY = np.uint32(0x7F800000)  # the bits of a float32 infinity


@numba.njit(cache=True, nogil=True)
def centre(x: Array) -> Array:
    """Rows minus their mean in float64; equal rows are exactly 0."""
    n, dim = x.shape
    first, mean, centred = x[0].astype(np.float64), np.zeros(dim), np.empty((n, dim))
    for i in range(n):
        for k in range(dim):
            centred[i, k] = x[i, k] - first[k]
            mean[k] += centred[i, k]
    mean /= n
    for i in range(n):
        for k in range(dim):
            centred[i, k] -= mean[k]
    return centred


@numba.njit(cache=True, nogil=True)
def choose(
    values: Array,
    own: Array,
    real: Array,
    first: int,
    error: Array,
    norms: Array,
    x: Array,
    scale: float,
    hard: bool,
    semihard: bool,
) -> tuple[Array, Array, Array, Array]:
    """`(column, negative, found, doubtful)` for the rows of the batch `x` from `first` on.

    `column` of `own` is the nearest positive (the farthest if `hard`), `negative` the nearest
    negative (`semihard`: beyond that positive). `values` are the coarse products, with their
    `error` and the squared `norms` they lack; they are overwritten.
    """
    rows = len(values)
    column, negative = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    found, doubtful = np.zeros(rows, np.bool_), np.zeros(rows, np.bool_)
    for i in range(rows):
        line, band, anchor = values[i], 2 * error[i], first + i
        column[i], doubtful[i] = _positive(line, own[i], real[i], band, x, anchor, scale, hard)
        positive = own[i, column[i]]
        # No product is below minus the anchor's squared norm: a squared distance is not negative.
        low = np.float32(line[positive] - band if semihard else -norms[i] - band)
        for k in range(own.shape[1]):
            line[own[i, k]] = np.inf
        line[anchor] = np.inf
        j, second = _two_lowest(line, low)
        negative[i], found[i] = j, 0 <= line[j] < np.inf
        if found[i] and (second <= line[j] + band or (semihard and line[j] <= 2 * band)):
            above = _square(x, anchor, positive, scale) if semihard else -1.0
            high, base = line[j] + band, np.float64(norms[i]) + low
            j = _measured(line, high, above, error[i], base, x, anchor, scale)
            negative[i], found[i], doubtful[i] = max(j, 0), j != _NONE, doubtful[i] or j == _MANY
    return column, negative, found, doubtful


@numba.njit(cache=True, nogil=True)
def _positive(
    line: Array,
    own: Array,
    real: Array,
    band: float,
    x: Array,
    anchor: int,
    scale: float,
    hard: bool,
) -> tuple[int, bool]:
    """Column of the nearest (farthest if `hard`) positive, and whether that is in doubt."""
    sign = -1.0 if hard else 1.0
    best = second = np.inf
    column = 0
    for k in range(len(own)):
        v = sign * line[own[k]]
        if real[k] and v < second:
            if v < best:
                best, second, column = v, best, k
            else:
                second = v
    if second > best + band:
        return column, False
    count, lowest = 0, np.inf
    for k in range(len(own)):
        if real[k] and sign * line[own[k]] <= best + band:
            count += 1
            exact = sign * _square(x, anchor, own[k], scale)
            if exact < lowest:
                lowest, column = exact, k
            if count > _CROWD:
                return column, True
    return column, False


@numba.njit(cache=True, nogil=True)
def _two_lowest(line: Array, low: Any) -> tuple[int, Any]:
    """Subtract `low` in place; the place of the lowest value that is not negative, and the second.

    Positive floats order as the unsigned integers of their bits, and negative ones come after all
    of them, so that the minimum of a chunk takes vector instructions; few chunks are looked into.
    """
    for j in range(len(line)):
        line[j] -= low
    bits = line.view(np.uint32)
    best = second = _INFINITY
    place, other = 0, -1
    for start in range(0, len(bits), _CHUNK):
        chunk = bits[start : start + _CHUNK]
        lowest = _INFINITY
        for j in range(len(chunk)):
            lowest = min(lowest, chunk[j])
        if lowest < second:
            for j in range(len(chunk)):
                if chunk[j] < best:
                    second, other = best, place if best < _INFINITY else -1
                    best, place = chunk[j], start + j
                elif chunk[j] < second:
                    second, other = chunk[j], start + j
    return place, line[other] if other >= 0 else np.float32(np.inf)


@numba.njit(cache=True, nogil=True)
def _measured(
    line: Array,
    high: float,
    above: float,
    error: float,
    base: float,
    x: Array,
    anchor: int,
    scale: float,
) -> int:
    """Nearest column beyond `above`, by measuring those with a value (plus `base`) up to `high`.

    `high` is raised until nobody beyond it can be nearer. _NONE if there is none, _MANY in a crowd.
    """
    while True:
        place, lowest, count, after = _NONE, np.inf, 0, np.inf
        for j in range(len(line)):
            if 0 <= line[j] <= high:
                count += 1
                if count > _CROWD:
                    return _MANY
                exact = _square(x, anchor, j, scale)
                if above < exact < lowest:
                    place, lowest = j, exact
            elif high < line[j] < after:
                after = line[j]
        if lowest - base + error <= high or (place == _NONE and after == np.inf):
            return place
        high = lowest - base + error if place != _NONE else after + 2 * error


@numba.njit(cache=True, nogil=True)
def _square(x: Array, i: int, j: int, scale: float) -> float:
    """Squared distance of two rows over `scale`² by direct differences in float64."""
    total = 0.0
    for k in range(x.shape[1]):
        difference = (np.float64(x[i, k]) - np.float64(x[j, k])) / scale
        total += difference * difference
    return total
