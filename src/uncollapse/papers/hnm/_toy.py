"""The small examples the paper draws; its coordinates are not given, so a seed stands for them."""

from __future__ import annotations

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse.geometry.diameters import class_diameters, diameter
from uncollapse.geometry.triplet_separation import is_triplet_separated, separation

__all__ = ["NAMES", "five_points", "separated_pair", "twenty_points"]

NAMES = ("class A", "class B")


def separated_pair(seed: int, margin: float) -> tuple[Array, Array]:
    """Two triplet-separated classes of four points: HNM Fig. 1."""
    rng = np.random.default_rng(seed)
    ids = np.repeat([0, 1], 4)
    x = np.vstack([_scattered(rng, 4, 0.9), _scattered(rng, 4, 0.9)])
    while not is_triplet_separated(x, ids, margin):
        x[4:, 0] += 0.1
    return x, ids


def five_points(seed: int) -> tuple[Array, Array]:
    """Three and two points that clearly are not separated: HNM Figs. 2 and 3."""
    rng = np.random.default_rng(seed)
    ids = np.array([0, 0, 0, 1, 1])
    while True:
        x = _scattered(rng, 5, 0.9)
        hardest = separation(x, ids)
        sides = x[[hardest.positive, hardest.negative]] - x[hardest.anchor]
        cosine = sides[0] @ sides[1] / np.linalg.norm(sides, axis=1).prod()
        sizes = sorted(class_diameters(x, ids).values())
        # A triplet whose sides can be told apart, and classes of about the same size.
        if (
            0.3 < -hardest.margin / diameter(x) < 0.6
            and abs(cosine) < 0.7
            and sizes[1] < 1.5 * sizes[0]
        ):
            return x, ids


def twenty_points(seed: int) -> tuple[Array, Array]:
    """Two classes of ten, all from one normal distribution: HNM Fig. 4."""
    return np.random.default_rng(seed).standard_normal((20, 2)), np.repeat([0, 1], 10)


def _scattered(rng: np.random.Generator, count: int, apart: float) -> Array:
    """Points of the plane, no two of them nearer than `apart`, so that markers do not overlap."""
    points: list[Array] = []
    while len(points) < count:
        candidate = 1.4 * rng.standard_normal(2)
        if all(np.linalg.norm(candidate - point) >= apart for point in points):
            points.append(candidate)
    return np.array(points)
