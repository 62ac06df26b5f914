"""All triplets of a block of anchors, as `_blocks.cross_class` with `_counting.HingeCount`."""

from __future__ import annotations

from typing import Any

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse._kernels.loops import add_force, fast, square

__all__ = ["class_distances", "class_gradient", "hinge_rows", "triplet_charge"]


# All triplets of a block of anchors, as `_blocks.cross_class` with `_counting.HingeCount`.

_PASSES = 128  # positives up to this many by one comparison each, more by bisection


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
    share: Any,  # what counts as close, see _blocks.CLOSE
    far: Any,
    rows: Array,  # [N, d] float64
    pull: Array,  # [N, K] out: negatives charged to each positive
    direct: Array,  # [N, d] float64, += gradient of the close pairs
) -> float:
    """Charge a block of anchors; returns the sum of the charged distances to negatives."""
    block, n = value.shape
    zero, one = value.dtype.type(0), value.dtype.type(1)
    weight = np.empty(n, value.dtype)
    near = np.empty(n, np.int64)
    push = 0.0
    for b in range(block):
        i = start + b
        row, mine = value[b], norm[i]
        count = zero
        for j in range(n):
            count += one if row[j] + mine <= share * (mine + norm[j]) else zero
        for j in range(low[i], high[i]):
            count -= one if row[j] + mine <= share * (mine + norm[j]) else zero
        found = 0
        if count > zero:
            for j in range(n):
                outside = j < low[i] or j >= high[i]
                if outside and row[j] + mine <= share * (mine + norm[j]):
                    near[found] = j
                    found += 1
        for j in range(n):
            row[j] = np.sqrt(max(row[j] + mine, zero))
            weight[j] = zero
        for f in range(found):
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
        for f in range(found):
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
        place = np.searchsorted(sorted_limit, row[j], side="right")
        passed = np.searchsorted(ordered, row[j], side="left") if window else width
        below[place] += 1
        below[passed] -= 1
        weight[j] = max(passed - place, 0)
    running = 0
    for k in range(width):
        running += below[k]
        pull[order[k]] = max(running, 0)


# Pairs in classes and in triplets by direct differences, as `_classwise` and `_mined`.


@fast
def class_distances(rows: Array, low: Array, high: Array, table: Array) -> None:
    """Fill the real entries of a table of distances inside the classes."""
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
    """Add the gradient of Σ weight · distance over a table."""
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
    """The triplets' reduced loss."""
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
