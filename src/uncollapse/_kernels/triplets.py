"""A training step over triplets: frame of the batch, choice of triplets, loss and gradient.

Small batches spend their time calling, not computing: here one call stands for forty.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from uncollapse._base.arrays import Array

_EPS = float(np.finfo(np.float64).eps)
_CROWD = 16  # candidates of a row that are measured at most
_NONE, _MANY = -1, -2
_CHUNK = 64
_INFINITY = np.uint32(0x7F800000)  # the bits of a float32 infinity
_PASSES = 128  # positives up to this many by one comparison each, more by bisection

# Sums may be reordered, and there are no NaNs; infinities keep their meaning.
fast = numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp", "nnan"})
# Products are not fused with the difference that follows: x * f - x * f must be exactly 0.
unfused = numba.njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
strict = numba.njit(cache=True, nogil=True)  # the order of float32 values decides


@fast
def square(x: Array, y: Array) -> float:
    """|x - y|²."""
    total = 0.0
    for k in range(len(x)):
        total += (x[k] - y[k]) ** 2
    return total


@fast
def add_force(gradient: Array, rows: Array, i: int, j: int, slope: float) -> None:
    """Pull row i of the gradient towards, and row j away from, x_i - x_j."""
    for k in range(rows.shape[1]):
        force = slope * (rows[i, k] - rows[j, k])
        gradient[i, k] += force
        gradient[j, k] -= force


@fast
def frame_rows(
    x: Array, normalize: bool, factor: Array, centre: Array, wide: Array, z: Array, norms: Array
) -> tuple[float, float]:
    """Fill a frame's arrays; returns its reach, and its zoom: 0 where all rows coincide.

    Twin of `distances.frame.prepare` for one set of rows.
    """
    n, dim = x.shape
    for i in range(n):
        factor[i] = 1.0
        if normalize:
            norm = 0.0
            for k in range(dim):
                norm += np.float64(x[i, k]) ** 2
            factor[i] = 1.0 / np.sqrt(norm) if norm > 0 else 0.0
    centre[:] = 0.0
    for i in range(n):
        for k in range(dim):
            wide[i, k] = np.float64(x[i, k]) * factor[i]
            centre[k] += wide[i, k] - wide[0, k]
    for k in range(dim):
        centre[k] = wide[0, k] + centre[k] / n
    peak = np.zeros(dim)  # by column, which the compiler does several at a time
    for i in range(n):
        for k in range(dim):
            peak[k] = max(peak[k], abs(wide[i, k] - centre[k]))
    reach = peak.max()
    # Rows of length 1 that differ by no more than their rounding are one point.
    one_point = reach <= (4 * _EPS if normalize else 0.0)
    zoom = 1.0 if one_point else 1.0 / math.ldexp(1.0, math.frexp(reach)[1])
    for k in range(dim):
        centre[k] *= zoom
    for i in range(n):
        factor[i] *= zoom
        norm = 0.0
        for k in range(dim):
            wide[i, k] = 0.0 if one_point else wide[i, k] * zoom - centre[k]
            z[i, k] = wide[i, k]
            norm += np.float64(z[i, k]) ** 2
        norms[i] = norm
    return reach, 0.0 if one_point else zoom


@fast
def tangent(gradient: Array, x: Array, inverse: Array) -> None:
    """Take the part along x out of each row, and multiply by the inverse norm, in place.

    Twin of `Frame.pull_back`.
    """
    for i in range(len(x)):
        radial = 0.0
        for k in range(x.shape[1]):
            radial += gradient[i, k] * x[i, k] * inverse[i]
        for k in range(x.shape[1]):
            along = radial * x[i, k] * inverse[i]
            gradient[i, k] = (gradient[i, k] - along) * inverse[i]


@strict
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
    """Fill `chosen`, (positive, negative, exists, doubtful), for the batch's rows from `first` on.

    Twin of `Miner._composed` for the nearest positive (the farthest if `hard`), and the nearest
    negative (`semihard`: beyond that positive). What is within the rounding error of the winner is
    measured by differences; rows where that is a crowd are only marked, for the twin to decide.

    `values` are the short squares of these rows, with the `error` they have and the squared `norms`
    they lack; they are overwritten. Row i's class is `order[lows[i] : highs[i]]`, its coordinates
    are `x[i] * factor[i]`.
    """
    positives, negatives, existing, doubtful = chosen
    for i in range(len(values)):
        line, anchor = values[i], first + i
        start, count = lows[anchor], highs[anchor] - lows[anchor]
        existing[anchor] = 1 < count < len(line)
        if not existing[anchor]:
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
        existing[anchor], doubtful[anchor] = exists, doubt


@strict
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


@strict
def _two_lowest(line: Array, low: Any) -> tuple[int, Any]:
    """Subtract `low` in place; the column of the lowest value not negative, and the second value.

    Positive floats order as the unsigned integers of their bits, and negative ones come after all
    of them, so that the minimum of a chunk takes vector instructions; few chunks are looked into.
    """
    for j in range(len(line)):
        line[j] -= low
    bits = line.view(np.uint32)
    best = second = _INFINITY
    column, other = 0, -1
    for start in range(0, len(bits), _CHUNK):
        chunk = bits[start : start + _CHUNK]
        lowest = _INFINITY
        for j in range(len(chunk)):
            lowest = min(lowest, chunk[j])
        if lowest < second:
            for j in range(len(chunk)):
                if chunk[j] < best:
                    second, other = best, column if best < _INFINITY else -1
                    best, column = chunk[j], start + j
                elif chunk[j] < second:
                    second, other = chunk[j], start + j
    return column, line[other] if other >= 0 else np.float32(np.inf)


@strict
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

    `high` is raised until nothing beyond it can be nearer. _NONE: there is none; _MANY: a crowd.
    """
    while True:
        nearest, lowest, count, after = _NONE, np.inf, 0, np.inf
        for j in range(len(line)):
            if 0 <= line[j] <= high:
                count += 1
                if count > _CROWD:
                    return _MANY
                exact = _square(x, anchor, j, factor)
                if above < exact < lowest:
                    nearest, lowest = j, exact
            elif high < line[j] < after:
                after = line[j]
        if lowest - base + error <= high or (nearest == _NONE and after == np.inf):
            return nearest
        high = lowest - base + error if nearest != _NONE else after + 2 * error


@strict
def _square(x: Array, i: int, j: int, factor: Array) -> float:
    """Squared distance of two rows in the frame's coordinates, by differences in float64."""
    total = 0.0
    for k in range(x.shape[1]):
        gap = np.float64(x[i, k]) * factor[i] - np.float64(x[j, k]) * factor[j]
        total += gap * gap
    return total


@fast
def hinge_rows(
    value: Array,  # [B, N] |z_j|² - 2 z_i·z_j on entry, slopes w / d on exit
    norm: Array,  # [N] |z|²
    start: int,  # first anchor of the block
    low: Array,  # [N] first column of each row's class
    high: Array,  # [N] last column + 1
    limit: Array,  # [N, K] what a negative must be nearer than, -inf where there is no positive
    above: Array,  # [N, K] what a negative must be farther than, with `window`
    window: bool,
    share: Any,  # what counts as close, see distances.tiles.CLOSE
    far: Any,
    rows: Array,  # [N, d] float64
    pull: Array,  # [N, K] out: negatives in the loss with each positive
    direct: Array,  # [N, d] float64, += gradient of the close pairs
) -> float:
    """All triplets of a block of anchors; returns the sum of their distances to negatives.

    Twin of `losses.classwise.cross_class` with the hinge of `losses.fast_triplets`.
    """
    block, n = value.shape
    zero, one = value.dtype.type(0), value.dtype.type(1)
    weight = np.empty(n, value.dtype)
    near = np.empty(n, np.int64)
    push = 0.0
    for b in range(block):
        i = start + b
        row, own = value[b], norm[i]
        count = zero
        for j in range(n):
            count += one if row[j] + own <= share * (own + norm[j]) else zero
        for j in range(low[i], high[i]):
            count -= one if row[j] + own <= share * (own + norm[j]) else zero
        close = 0
        if count > zero:
            for j in range(n):
                outside = j < low[i] or j >= high[i]
                if outside and row[j] + own <= share * (own + norm[j]):
                    near[close] = j
                    close += 1
        for j in range(n):
            row[j] = np.sqrt(max(row[j] + own, zero))
            weight[j] = zero
        for f in range(close):
            j = near[f]
            row[j] = np.sqrt(square(rows[i], rows[j]))
        for j in range(low[i], high[i]):
            row[j] = far
        size = high[i] - low[i]
        if size <= _PASSES:
            for k in range(size):
                least = above[i, k] if window else -one
                most = limit[i, k]
                hits = zero
                if most > zero:
                    for j in range(n):
                        hit = one if (least < row[j]) & (row[j] < most) else zero
                        weight[j] += hit
                        hits += hit
                pull[i, k] = hits
        else:
            _bisect(row, limit[i, :size], above[i, :size], window, weight, pull[i])
        for j in range(n):
            push += np.float64(weight[j] * row[j])
        for f in range(close):
            j = near[f]
            if row[j] > 0:
                add_force(direct, rows, i, j, -np.float64(weight[j]) / row[j])
            weight[j] = zero
            row[j] = far
        for j in range(n):
            row[j] = -weight[j] / row[j]
    return push


@fast
def _bisect(
    row: Array,
    limit: Array,
    above: Array,
    window: bool,
    weight: Array,
    pull: Array,
) -> None:
    """Counts of one anchor with many positives, from each negative's place among them."""
    order = np.argsort(limit)  # the positives' own order: one order sorts both
    sorted_limit, ordered = limit[order], above[order]
    width = len(order)
    below = np.zeros(width + 1, np.int64)
    for j in range(len(row)):
        first = np.searchsorted(sorted_limit, row[j], side="right")
        passed = np.searchsorted(ordered, row[j], side="left") if window else width
        below[first] += 1
        below[passed] -= 1
        weight[j] = max(passed - first, 0)
    running = 0
    for k in range(width):
        running += below[k]
        pull[order[k]] = max(running, 0)


@fast
def class_distances(rows: Array, low: Array, high: Array, table: Array) -> None:
    """Fill the real entries of a table of distances inside the classes: `ByClass.distances`."""
    for i in range(len(rows)):
        first = low[i]
        for j in range(i + 1, high[i]):
            distance = np.sqrt(square(rows[i], rows[j]))
            table[i, j - first] = distance
            table[j, i - first] = distance


@fast
def class_gradient(
    rows: Array, low: Array, high: Array, weight: Array, table: Array, gradient: Array
) -> None:
    """Add the gradient of Σ weight · distance over a table: `ByClass.gradient`."""
    for i in range(len(rows)):
        first = low[i]
        for j in range(i + 1, high[i]):
            distance = np.float64(table[i, j - first])
            if distance > 0:
                slope = (weight[i, j - first] + weight[j, i - first]) / distance
                add_force(gradient, rows, i, j, slope)


@fast
def triplet_charge(
    rows: Array,
    anchor: Array,
    positive: Array,
    negative: Array,
    unit: float,
    margin: float,
    soft: bool,
    nonzero: bool,  # mean over the positive losses only
    hardest: bool,  # the largest loss alone
    gradient: Array,  # [N, d], += the gradient
) -> float:
    """Reduced loss of listed triplets. Twin of `losses.fast_triplets.mined_triplets`."""
    count = len(anchor)
    near, far = np.empty(count), np.empty(count)
    slope = np.empty(count)
    total, most, tuples, worst = 0.0, -1.0, 0, 0
    for t in range(count):
        near[t] = np.sqrt(square(rows[anchor[t]], rows[positive[t]]))
        far[t] = np.sqrt(square(rows[anchor[t]], rows[negative[t]]))
        excess = (near[t] - far[t]) * unit + margin
        if soft:
            loss = max(excess, 0.0) + np.log1p(np.exp(-abs(excess)))
            slope[t] = 1.0 / (1.0 + np.exp(-excess))
        else:
            loss = max(excess, 0.0)
            slope[t] = 1.0 if excess > 0 else 0.0
        total += loss
        tuples += 1 if loss > 0 or not nonzero else 0
        if loss > most:
            most, worst = loss, t
    over = 1.0 if hardest else 1.0 / max(tuples, 1)
    for t in range(count):
        weight = slope[t] * over if t == worst or not hardest else 0.0
        if weight > 0 and near[t] > 0:
            add_force(gradient, rows, anchor[t], positive[t], weight / near[t])
        if weight > 0 and far[t] > 0:
            add_force(gradient, rows, anchor[t], negative[t], -weight / far[t])
    return most if hardest else total * over
