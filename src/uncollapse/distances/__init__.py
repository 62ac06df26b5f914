"""Euclidean distances that stay right near collapse: HNM (1). The project's only source of them."""

from uncollapse.distances.frame import (
    Frame,
    binary_scale,
    float32_is_exact,
    on_host,
    screen_dtype,
    squared_norms,
    working_dtype,
)
from uncollapse.distances.tiles import centre, paired_distances, pairwise_distances

__all__ = [
    "Frame",
    "binary_scale",
    "centre",
    "float32_is_exact",
    "on_host",
    "paired_distances",
    "pairwise_distances",
    "screen_dtype",
    "squared_norms",
    "working_dtype",
]
