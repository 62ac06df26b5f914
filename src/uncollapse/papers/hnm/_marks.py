"""Lines and words on the figures of HNM."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse.charts import Axes
from uncollapse.charts.marks import Line, Mark, Text
from uncollapse.distances import pairwise_distances

__all__ = ["along", "hardest_triplet", "segment", "side", "tags"]


def hardest_triplet(x: Array, ids: Array, of_class: int | None = None) -> tuple[int, int, int]:
    """Anchor, farthest positive and nearest negative of the hardest anchor (of one class)."""
    distance = pairwise_distances(x).numpy()
    mates = ids[:, None] == ids
    positive = np.where(mates, distance, -1.0).argmax(axis=1)
    negative = np.where(mates, np.inf, distance).argmin(axis=1)
    rows = np.arange(len(x))
    loss = distance[rows, positive] - distance[rows, negative]
    if of_class is not None:
        loss = np.where(ids == of_class, loss, -np.inf)
    anchor = int(loss.argmax())
    return anchor, int(positive[anchor]), int(negative[anchor])


def segment(axes: Axes, x: Array, i: int, j: int, dash: Sequence[float] = ()) -> Line:
    """A line between two points."""
    return Line(axes.at(*x[i]), axes.at(*x[j]), "ink", 1.6, dash)


def side(x: Array, i: int, j: int) -> float:
    """How far two points are from each other."""
    return float(np.linalg.norm(x[i] - x[j]))


def along(x: Array, i: int, j: int) -> Array:
    """Points on the line between two rows."""
    share = np.linspace(0.0, 1.0, 25)[:, None]
    line: Array = x[i] + share * (x[j] - x[i])
    return line


def tags(axes: Axes, x: Array, words: dict[int, str], avoid: list[Array]) -> list[Mark]:
    """A word beside each of these points, clear of all points, of what to avoid, of other words."""
    span = max(axes.x.high - axes.x.low, axes.y.high - axes.y.low)
    taken = np.vstack([x, *avoid])
    turn = np.arange(16) * np.pi / 8
    found: list[Mark] = []
    for row, word in words.items():
        # A word is wider than high: it needs more room to the sides.
        wide = 0.025 * span + 0.011 * span * len(word) / 2
        spots = x[row] + np.stack([wide * np.cos(turn), 0.05 * span * np.sin(turn)], axis=1)
        shape = np.array([wide / (0.03 * span), 1.0])
        clear = np.linalg.norm((spots[:, None] - taken) / shape, axis=2).min(axis=1)
        best = spots[int(clear.argmax())]
        at, up = axes.at(*best)
        found.append(Text(at, up + 4, word, 12, "ink", "middle", halo=True))
        taken = np.vstack([taken, best + np.array([[-wide, 0.0], [0.0, 0.0], [wide, 0.0]])])
    return found
