"""Euclidean distances that stay right near collapse: HNM (1). The project's only source of them."""

from uncollapse.distances.frame import (
    Frame,
    binary_scale,
    centre,
    exact_squares,
    on_host,
    paired_distances,
    pairwise_distances,
    row_argmin,
    screen_dtype,
    short_squares,
    squared_norms,
    unit_rows,
    working_dtype,
)

__all__ = [
    "Frame",
    "binary_scale",
    "centre",
    "exact_squares",
    "on_host",
    "paired_distances",
    "pairwise_distances",
    "row_argmin",
    "screen_dtype",
    "short_squares",
    "squared_norms",
    "unit_rows",
    "working_dtype",
]
