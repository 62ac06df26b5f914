"""HNM Fig. 3: the isometric error of five points, and the hardest triplet of the same five."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse.charts import Axes, panels
from uncollapse.charts.marks import Line, Mark, Text
from uncollapse.charts.render_svg import brace
from uncollapse.distances import pairwise_distances
from uncollapse.geometry.isometry import best_isometry
from uncollapse.geometry.nearest import nearest_separated
from uncollapse.papers._draw import (
    COLOURS,
    DASHED,
    DOTTED,
    along,
    class_entries,
    class_points,
    panel,
    plane,
    save,
    segment,
    side,
    tags,
)
from uncollapse.papers._item import Item, Made, Request
from uncollapse.papers.hnm._examples import NAMES, five_points, hardest_triplet

__all__ = ["FIG3"]


def _make(request: Request) -> Made:
    x, ids = five_points(request.seed)
    found = nearest_separated(x, ids, objective="iso", seed=request.seed)
    # An isometric error does not see a turn or a shift: lay the stars over the points.
    raw = found.points.numpy()
    z = best_isometry(raw, x, norm="l2")(raw)
    anchor, positive, negative = hardest_triplet(x, ids)
    both = np.vstack([x, z])
    extent = float(np.ptp(both, axis=0).max())
    base = both.min(axis=0) - np.array([0.0, 0.42 * extent])
    clouds = [both, base[None], base[None] + np.array([1.45 * extent, 0.0])]
    axes = plane(clouds, 370.0, pad=0.09)
    pair = _largest_change(x, z, (anchor, positive), (anchor, negative))
    loss = side(x, anchor, positive) - side(x, anchor, negative)
    caption = (
        f"Left: the separated points whose distances differ least from the given ones (stars, laid "
        f"over the points). The pair shown changes most: the two bars are its distance before and "
        f"after, and the brace is d_iso (15); no separated points do better than "
        f"{found.lower_bound:.3f}. Right: the triplet that hard negative mining picks; the brace, "
        f"farthest positive minus nearest negative, is its loss (4) at margin 0. Here d_iso / loss "
        f"= {found.value / loss:.3f}; it is never below 1/2."
    )
    triplet = anchor, positive, negative
    figure = panels(
        "HNM Fig. 3: the isometric error and the hardest triplet of five points",
        [
            panel(
                axes,
                f"isometric error: d_iso = {found.value:.3f}",
                "the pair that changes most, before and after",
                _isometric_panel(axes, x, z, ids, pair, base, extent),
            ),
            panel(
                axes,
                f"hardest triplet: loss = {loss:.3f}",
                "the anchor with its farthest positive and nearest negative",
                _triplet_panel(axes, x, ids, triplet, base, extent),
            ),
        ],
        columns=2,
        note=caption,
        legend=class_entries(NAMES, "nearest separated"),
    )
    return Made(save(figure, request.out, request.item))


def _largest_change(x: Array, z: Array, *preferred: tuple[int, int]) -> tuple[int, int]:
    """The pair whose distance changes most; among equals, one of the hardest triplet."""
    change = np.abs(pairwise_distances(x).numpy() - pairwise_distances(z).numpy())
    for i, j in preferred:
        if change[i, j] >= 0.999 * change.max():
            return i, j
    row, column = np.unravel_index(int(change.argmax()), change.shape)
    return int(row), int(column)


def _isometric_panel(
    axes: Axes, x: Array, z: Array, ids: Array, pair: tuple[int, int], base: Array, extent: float
) -> list[Mark]:
    return [
        segment(axes, x, *pair),
        segment(axes, z, *pair, DOTTED),
        *(
            Line(axes.at(*x[k]), axes.at(*z[k]), COLOURS[ids[k]], opacity=0.6)
            for k in range(len(x))
        ),
        *class_points(axes, x, ids),
        *class_points(axes, z, ids, star=True),
        *_bars(
            axes, [("before", side(x, *pair), ()), ("after", side(z, *pair), DOTTED)], base, extent
        ),
    ]


def _triplet_panel(
    axes: Axes, x: Array, ids: Array, triplet: tuple[int, int, int], base: Array, extent: float
) -> list[Mark]:
    anchor, positive, negative = triplet
    near, far = side(x, anchor, positive), side(x, anchor, negative)
    words = {anchor: "anchor", positive: "positive", negative: "negative"}
    lines = [along(x, anchor, positive), along(x, anchor, negative)]
    return [
        segment(axes, x, anchor, positive),
        segment(axes, x, anchor, negative, DASHED),
        *class_points(axes, x, ids),
        *tags(axes, x, words, lines),
        *_bars(axes, [("positive", near, ()), ("negative", far, DASHED)], base, extent),
    ]


def _bars(
    axes: Axes, bars: Sequence[tuple[str, float, Sequence[float]]], base: Array, extent: float
) -> list[Mark]:
    """Two lengths drawn to scale under the points, and a brace over their difference."""
    start = base[0] + 0.2 * extent
    found: list[Mark] = []
    for k, (word, length, dash) in enumerate(bars):
        height = base[1] + (0.0 if k else 0.09 * extent)
        left, y = axes.at(start, height)
        right = axes.x(start + length)
        found.append(Line((left, y), (right, y), "ink", 2.2, dash))
        found.append(Text(left - 6, y + 4, word, 11, "ink", "end"))
        found.append(Text(right + 6, y + 4, f"{length:.3f}", 11, "ink"))
    low, high = sorted(length for _, length, _ in bars)
    left, foot = axes.at(start + low, base[1] + 0.13 * extent)
    right, top = axes.at(start + high, base[1] + 0.18 * extent)
    found.append(brace(left, right, foot, foot - top))
    middle, text = (left + right) / 2, f"{high - low:.3f}"
    found.append(Text(middle, top - 5, text, 12, "ink", "middle", bold=True))
    return found


FIG3 = Item.of("fig3", _make)
