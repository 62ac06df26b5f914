"""HNM Fig. 3: the isometric error of five points, and the hardest triplet of the same five."""

from __future__ import annotations

from typing import Any

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse.distances import pairwise_distances
from uncollapse.geometry.isometry import best_isometry
from uncollapse.geometry.nearest import nearest_separated
from uncollapse.papers._draw import COLOURS, INK, caption, frame, panels, save, scatter
from uncollapse.papers._item import Item, Made, Request
from uncollapse.papers.hnm._marks import along, curly_brace, hardest_triplet, segment, tags
from uncollapse.papers.hnm._toy import NAMES, five_points

__all__ = ["FIG3"]


def _make(request: Request) -> Made:
    x, ids = five_points(request.seed)
    found = nearest_separated(x, ids, objective="iso", seed=request.seed)
    # An isometric error does not see a turn or a shift: lay the stars over the points.
    raw = found.points.numpy()
    z = best_isometry(raw, x, norm="l2")(raw)
    anchor, positive, negative = hardest_triplet(x, ids)
    figure, (left, right) = panels(2, 10.4)
    both = np.vstack([x, z])
    extent = float(np.ptp(both, axis=0).max())
    base = both.min(axis=0) - np.array([0.0, 0.42 * extent])
    for axis in (left, right):
        frame(axis, [both, base[None], base[None] + np.array([1.45 * extent, 0.0])], pad=0.09)
    pair = _largest_change(x, z, (anchor, positive), (anchor, negative))
    _isometric_panel(left, x, z, ids, pair, base, extent)
    near, far = _triplet_panel(right, x, ids, (anchor, positive, negative), base, extent)
    loss = near - far
    left.set_title(f"isometric error: d_iso = {found.value:.3f}", fontsize=11)
    right.set_title(f"hardest triplet: loss = {loss:.3f}", fontsize=11)
    caption(
        figure,
        f"Left: the separated points whose distances differ least from the given ones (stars, laid "
        f"over the points). The pair shown changes most: the two bars are its distance before and "
        f"after, and the brace is d_iso (15); no separated points do better than "
        f"{found.lower_bound:.3f}. Right: the triplet that hard negative mining picks; the brace, "
        f"farthest positive minus nearest negative, is its loss (4) at margin 0. Here d_iso / loss "
        f"= {found.value / loss:.3f}; it is never below 1/2.",
        130,
    )
    return Made(save(figure, request.out, "fig3"))


def _largest_change(x: Array, z: Array, *preferred: tuple[int, int]) -> tuple[int, int]:
    """The pair whose distance changes most; among equals, one of the hardest triplet."""
    change = np.abs(pairwise_distances(x).numpy() - pairwise_distances(z).numpy())
    for i, j in preferred:
        if change[i, j] >= 0.999 * change.max():
            return i, j
    row, column = np.unravel_index(int(change.argmax()), change.shape)
    return int(row), int(column)


def _isometric_panel(
    axis: Any, x: Array, z: Array, ids: Array, pair: tuple[int, int], base: Array, extent: float
) -> None:
    before = segment(axis, x, *pair, "-")
    after = segment(axis, z, *pair, ":")
    for k in range(len(x)):
        axis.plot(*np.stack([x[k], z[k]]).T, color=COLOURS[ids[k]], linewidth=0.8, alpha=0.5)
    scatter(axis, x, ids, NAMES)
    scatter(axis, z, ids, NAMES, star="nearest separated")
    bars = [("before", before, "-"), ("after", after, ":")]
    _bars(axis, bars, base, extent)


def _triplet_panel(
    axis: Any, x: Array, ids: Array, triplet: tuple[int, int, int], base: Array, extent: float
) -> tuple[float, float]:
    anchor, positive, negative = triplet
    near = segment(axis, x, anchor, positive, "-")
    far = segment(axis, x, anchor, negative, "--")
    scatter(axis, x, ids, NAMES)
    words = {anchor: "anchor", positive: "positive", negative: "negative"}
    lines = [along(x, anchor, positive), along(x, anchor, negative)]
    tags(axis, x, words, lines)
    _bars(axis, [("positive", near, "-"), ("negative", far, "--")], base, extent)
    return near, far


def _bars(axis: Any, bars: list[tuple[str, float, str]], base: Array, extent: float) -> None:
    """Two lengths drawn to scale under the points, and a brace over their difference."""
    start = base[0] + 0.2 * extent
    for k, (word, length, style) in enumerate(bars):
        height = base[1] + (0.0 if k else 0.09 * extent)
        axis.plot([start, start + length], [height] * 2, style, color=INK, linewidth=2.2)
        axis.text(start - 0.02 * extent, height, word, ha="right", va="center", fontsize=9)
        axis.text(start + length + 0.02 * extent, height, f"{length:.3f}", va="center", fontsize=9)
    low, high = sorted(length for _, length, _ in bars)
    curly_brace(axis, start + low, start + high, base[1] + 0.13 * extent, 0.05 * extent)
    axis.text(
        start + (low + high) / 2,
        base[1] + 0.2 * extent,
        f"{high - low:.3f}",
        ha="center",
        va="bottom",
        fontsize=10,
        fontweight="bold",
    )


FIG3 = Item(
    name="fig3",
    summary="HNM Fig. 3: the isometric error and the hardest triplet of five points",
    needs="the extra 'plots'",
    time="seconds",
    make=_make,
)
