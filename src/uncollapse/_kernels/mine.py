"""The common choices of a miner in one pass over a block of products: twin of `Miner._composed`.

For small batches the time goes into calling, not computing: here is one call in place of forty.
Whoever is within the rounding error of the winner is measured by differences; rows where that is a
crowd are only marked, for the twin to decide.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from uncollapse._base.arrays import Array

__all__ = ["choose"]


_CROWD = 16  # measured at most in a row
_NONE, _MANY = -1, -2
_CHUNK = 64
_INFINITY = np.uint32(0x7F800000)  # the bits of a float32 infinity


@numba.njit(cache=True, nogil=True)
def choose(
    values: Array,
    first: int,
    order: Array,
    lows: Array,
    highs: Array,
    error: Array,
    norms: Array,
    x: Array,
    factor: Array,
    hard: bool,
    semihard: bool,
    chosen: tuple[Array, Array, Array, Array],
) -> None:
    """Fill `chosen`, (positive, negative, found, doubtful), for the rows of the batch from `first`.

    The nearest positive (the farthest if `hard`), and the nearest negative (`semihard`: beyond that
    positive). `values` are the short squares of these rows, with the `error` they have and the
    squared `norms` they lack; they are overwritten. Row i's class is `order[lows[i] : highs[i]]`,
    its coordinates are `x[i] * factor[i]`.
    """
    positives, negatives, found, doubtful = chosen
    for i in range(len(values)):
        line, anchor = values[i], first + i
        start, count = lows[anchor], highs[anchor] - lows[anchor]
        found[anchor] = 1 < count < len(line)
        if not found[anchor]:
            continue
        own, band = order[start : start + count], 2 * error[anchor]
        positive, doubt = _positive(line, own, band, x, anchor, factor, hard)
        # No product is below minus the anchor's squared norm: a squared distance is not negative.
        low = np.float32(line[positive] - band if semihard else -norms[anchor] - band)
        for k in own:
            line[k] = np.inf
        negative, second = _two_lowest(line, low)
        nearest = line[negative]
        exists = 0 <= nearest < np.inf
        if exists and (second <= nearest + band or (semihard and nearest <= 2 * band)):
            above = _square(x, anchor, positive, factor) if semihard else -1.0
            base = np.float64(norms[anchor]) + low
            negative = _measured(
                line, nearest + band, above, error[anchor], base, x, anchor, factor
            )
            exists, doubt = negative != _NONE, doubt or negative == _MANY
        positives[anchor], negatives[anchor] = positive, negative
        found[anchor], doubtful[anchor] = exists, doubt


@numba.njit(cache=True, nogil=True)
def _positive(
    line: Array, own: Array, band: float, x: Array, anchor: int, factor: Array, hard: bool
) -> tuple[int, bool]:
    """The nearest (farthest if `hard`) positive, and whether that is in doubt."""
    sign = -1.0 if hard else 1.0
    best = second = np.inf
    positive = anchor
    for k in own:
        v = sign * line[k]
        if k != anchor and v < second:
            if v < best:
                best, second, positive = v, best, k
            else:
                second = v
    if second > best + band:
        return positive, False
    count, lowest = 0, np.inf
    for k in own:
        if k != anchor and sign * line[k] <= best + band:
            count += 1
            exact = sign * _square(x, anchor, k, factor)
            if exact < lowest:
                lowest, positive = exact, k
            if count > _CROWD:
                return positive, True
    return positive, False


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
    factor: Array,
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
                exact = _square(x, anchor, j, factor)
                if above < exact < lowest:
                    place, lowest = j, exact
            elif high < line[j] < after:
                after = line[j]
        if lowest - base + error <= high or (place == _NONE and after == np.inf):
            return place
        high = lowest - base + error if place != _NONE else after + 2 * error


@numba.njit(cache=True, nogil=True)
def _square(x: Array, i: int, j: int, factor: Array) -> float:
    """Squared distance of two rows in the frame's coordinates, by differences in float64."""
    total = 0.0
    for k in range(x.shape[1]):
        gap = np.float64(x[i, k]) * factor[i] - np.float64(x[j, k]) * factor[j]
        total += gap * gap
    return total
