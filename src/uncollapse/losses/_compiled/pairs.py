"""Pairs in classes and in triplets by direct differences, as `_classwise` and `_mined`."""

from __future__ import annotations

import numpy as np

from uncollapse.losses._compiled._base import Array, add_force, fast, square

__all__ = ["class_distances", "class_gradient", "triplet_distances", "triplet_gradient"]


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
def triplet_distances(
    rows: Array, anchor: Array, positive: Array, negative: Array, near: Array, far: Array
) -> None:
    """Distances of the triplets' two pairs."""
    for t in range(len(anchor)):
        near[t] = np.sqrt(square(rows[anchor[t]], rows[positive[t]]))
        far[t] = np.sqrt(square(rows[anchor[t]], rows[negative[t]]))


@fast
def triplet_gradient(
    rows: Array,
    anchor: Array,
    positive: Array,
    negative: Array,
    near: Array,
    far: Array,
    weight: Array,
    gradient: Array,
) -> None:
    """Add the gradient of Σ weight · (near - far)."""
    for t in range(len(anchor)):
        if weight[t] != 0:
            if near[t] > 0:
                add_force(gradient, rows, anchor[t], positive[t], weight[t] / near[t])
            if far[t] > 0:
                add_force(gradient, rows, anchor[t], negative[t], -weight[t] / far[t])
