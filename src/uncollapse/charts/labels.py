"""Names on a map, moved apart until each can be read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from uncollapse.charts.marks import Line, Mark, Text
from uncollapse.charts.text import text_width

__all__ = ["labels_apart", "names_on_map"]


def labels_apart(
    places: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    box: tuple[float, float, float, float],
) -> list[tuple[float, float]]:
    """Centres of boxes of these sizes near the places, inside `box`, no two of them overlapping.

    `box` is (left, top, right, bottom). Where they cannot all fit, they overlap as little as the
    steps allow.

    >>> labels_apart([(50, 50), (50, 50)], [(20, 10), (20, 10)], (0, 0, 100, 100))
    [(50.0, 45.0), (50.0, 55.0)]
    """
    at = np.asarray(places, np.float64).reshape(-1, 2).copy()
    half = np.asarray(sizes, np.float64).reshape(-1, 2) / 2
    least, most = np.asarray(box[:2]) + half, np.asarray(box[2:]) - half
    at = np.clip(at, least, np.maximum(least, most))
    for _ in range(400):
        gap = at[None] - at[:, None]  # from i to j
        lap = half[:, None] + half[None] - np.abs(gap)
        both = np.asarray((lap > 1e-6).all(axis=2))
        np.fill_diagonal(both, False)
        if not both.any():
            break
        # Each pair parts along the axis where it takes less; those at one place by their order.
        order = np.sign(np.subtract.outer(np.arange(len(at)), np.arange(len(at)))).T
        way = np.where(gap == 0, order[..., None], np.sign(gap))
        along = lap.argmin(axis=2)
        push = np.zeros_like(gap)
        i, j = np.nonzero(both)
        k = along[i, j]
        push[i, j, k] = -0.5 * lap[i, j, k] * way[i, j, k]
        at = np.clip(at + push.sum(axis=1), least, np.maximum(least, most))
    return [(round(float(x), 1), round(float(y), 1)) for x, y in at]


def names_on_map(
    names: Sequence[str],
    places: Sequence[tuple[float, float]],
    side: tuple[float, float],
    *,
    colours: Sequence[str] | None = None,
    size: float = 12.0,
) -> list[Mark]:
    """A name at each place of a map of so many units; a stroke leads from those moved far away."""
    sizes = [(text_width(name, size, bold=True) + 4, size + 3) for name in names]
    found = labels_apart(places, sizes, (2.0, 2.0, side[0] - 2.0, side[1] - 2.0))
    marks: list[Mark] = []
    for (x, y), (to_x, to_y) in zip(places, found, strict=True):
        if abs(x - to_x) + abs(y - to_y) > 1.5 * size:
            marks.append(Line((float(x), float(y)), (to_x, to_y), "soft", 0.8))
    for i, (name, (x, y)) in enumerate(zip(names, found, strict=True)):
        colour = "ink" if colours is None else colours[i]
        marks.append(Text(x, y + 0.36 * size, name, size, colour, "middle", bold=True, halo=True))
    return marks
