"""Lines, words and braces on the figures of HNM."""

from __future__ import annotations

from typing import Any

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse._base.extras import import_extra
from uncollapse.distances import pairwise_distances
from uncollapse.papers._draw import INK

__all__ = ["along", "curly_brace", "hardest_triplet", "segment", "tags"]


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


def segment(axis: Any, x: Array, i: int, j: int, style: str) -> float:
    """A line between two points; returns its length."""
    axis.plot(*x[[i, j]].T, linestyle=style, color=INK, linewidth=1.6, zorder=2)
    return float(np.linalg.norm(x[i] - x[j]))


def along(x: Array, i: int, j: int) -> Array:
    """Points on the line between two rows."""
    share = np.linspace(0.0, 1.0, 25)[:, None]
    line: Array = x[i] + share * (x[j] - x[i])
    return line


def tags(axis: Any, x: Array, words: dict[int, str], avoid: list[Array]) -> None:
    """A word beside each of these points, clear of all points, of what to avoid, of other words."""
    span = max(float(np.ptp(limits)) for limits in (axis.get_xlim(), axis.get_ylim()))
    taken = np.vstack([x, *avoid])
    turn = np.arange(16) * np.pi / 8
    for row, word in words.items():
        # A word is wider than high: it needs more room to the sides.
        wide = 0.025 * span + 0.011 * span * len(word) / 2
        spots = x[row] + np.stack([wide * np.cos(turn), 0.05 * span * np.sin(turn)], axis=1)
        shape = np.array([wide / (0.03 * span), 1.0])
        clear = np.linalg.norm((spots[:, None] - taken) / shape, axis=2).min(axis=1)
        best = spots[int(clear.argmax())]
        halo = import_extra("matplotlib.patheffects", "plots").withStroke(
            linewidth=3, foreground="white"
        )
        axis.text(
            *best,
            word,
            ha="center",
            va="center",
            fontsize=10,
            color=INK,
            zorder=8,
            path_effects=[halo],
        )
        taken = np.vstack([taken, best + np.array([[-wide, 0.0], [0.0, 0.0], [wide, 0.0]])])


def curly_brace(axis: Any, left: float, right: float, base: float, height: float) -> None:
    """A brace over [left, right], its tip upwards."""
    path = import_extra("matplotlib.path", "plots").Path
    patch = import_extra("matplotlib.patches", "plots").PathPatch
    middle, waist = (left + right) / 2, base + height / 2
    bend = min(height / 2, (right - left) / 4)
    corners = [(left, base), (left, waist), (left + bend, waist), (middle - bend, waist)]
    corners += [(middle, waist), (middle, base + height)]
    mirrored = [(left + right - a, b) for a, b in reversed(corners[:-1])]
    codes = [path.MOVETO, path.CURVE3, path.CURVE3, path.LINETO, path.CURVE3, path.CURVE3]
    codes += [path.CURVE3, path.CURVE3, path.LINETO, path.CURVE3, path.CURVE3]
    shape = path([*corners, *mirrored], codes)
    axis.add_patch(patch(shape, facecolor="none", edgecolor="black", linewidth=1.6, zorder=6))
