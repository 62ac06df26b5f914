"""Pairs in classes and in triplets by direct differences, as `_classwise` and `_mined`."""

from __future__ import annotations

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse._kernels.loops import add_force, fast, square

__all__ = ["class_distances", "class_gradient", "triplet_charge"]


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
