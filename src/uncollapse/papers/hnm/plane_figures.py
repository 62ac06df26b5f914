"""HNM Figs. 1, 2 and 4: triplets, boundaries and the nearest separated points in the plane."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse.charts import Axes, Chart, panels
from uncollapse.charts.marks import Line, Mark, Text, brace
from uncollapse.distances import pairwise_distances
from uncollapse.geometry.diameters import diameter
from uncollapse.geometry.isometry import best_isometry
from uncollapse.geometry.nearest import (
    NearestSeparated,
    gradient_descent_separated,
    nearest_separated,
)
from uncollapse.geometry.triplet_separation import hard_mined_loss, separation
from uncollapse.papers._draw import (
    COLOURS,
    DASHED,
    DOTTED,
    along,
    arrows,
    boundary,
    class_entries,
    class_points,
    edge,
    panel,
    plane,
    reach,
    save,
    segment,
    side,
    tags,
)
from uncollapse.papers._item import Item, Made, Page, Request
from uncollapse.papers.hnm.claims import (
    NAMES,
    five_points,
    hardest_triplet,
    separated_pair,
    twenty_points,
)

__all__ = ["FIG3", "PLANE_FIGURES"]


_STEPS = 50  # of gradient descent, as in the paper


def _triplet(request: Request) -> Made:
    x, ids = separated_pair(request.seed, 0.25)
    margin = separation(x, ids).margin
    # The triplet is drawn for class A, whose boundary is shown.
    anchor, positive, negative = hardest_triplet(x, ids, of_class=0)
    near, far = side(x, anchor, positive), side(x, anchor, negative)
    axes = plane([x, reach(x[ids == 0])], 500.0)
    words = {anchor: "anchor", positive: "positive", negative: "negative"}
    lines = [along(x, anchor, positive), along(x, anchor, negative)]
    drawn = [
        *boundary(axes, x[ids == 0], COLOURS[0]),
        segment(axes, x, anchor, positive),
        segment(axes, x, anchor, negative, DASHED),
        *class_points(axes, x, ids),
        *tags(axes, x, words, [*lines, edge(x[ids == 0])]),
    ]
    caption = (
        f"An anchor with its farthest positive (solid, {near:.2f}) and its nearest negative "
        f"(dashed, {far:.2f}). The dashed contour is the triplet-separated boundary of class A: "
        "(5) with margin 0 for all its points. Class B lies outside it, so every triplet with an "
        f"anchor in class A has loss 0. Over both classes the separation is {margin:.2f}."
    )
    figure = panels(
        "HNM Fig. 1: a triplet and the triplet-separated boundary of a class",
        [panel(axes, "", "the triplet and the boundary", drawn)],
        columns=1,
        note=caption,
        legend=class_entries(NAMES),
    )
    return Made(save(figure, request.out, request.item))


def _nearest(request: Request) -> Made:
    x, ids = five_points(request.seed)
    found = nearest_separated(x, ids, seed=request.seed)
    z = found.points.numpy()
    axes = plane([x, *(reach(z[ids == c]) for c in (0, 1))], 370.0, pad=0.04)
    caption = (
        f"Left: five points whose classes are not triplet-separated (hard-mined loss "
        f"{hard_mined_loss(x, ids):.3f}). "
        f"Right: the separated points nearest to them (stars). The longest moves, in black, are "
        f"the distance (13): d_haus = {found.value:.3f}; no separated points are nearer than "
        f"{found.lower_bound:.3f}. The stars are separated: no class enters the dashed "
        "triplet-separated boundary of the other."
    )
    left, right = "the points: not separated", "the nearest separated points"
    figure = panels(
        "HNM Fig. 2: five points and the nearest triplet-separated ones",
        [
            panel(axes, left, "five points of two classes", class_points(axes, x, ids)),
            _moves(axes, right, x, z, ids),
        ],
        columns=2,
        note=caption,
        legend=class_entries(NAMES, "nearest separated"),
    )
    return Made(save(figure, request.out, request.item))


def _descent(request: Request) -> Made:
    x, ids = twenty_points(request.seed)
    descent = gradient_descent_separated(x, ids, steps=_STEPS)
    nearest = nearest_separated(x, ids, seed=request.seed)
    both = [found.points.numpy() for found in (descent, nearest)]
    axes = plane([x, *both, *(reach(both[1][ids == c]) for c in (0, 1))], 390.0, pad=0.03)
    titles = (f"{_STEPS} gradient descent steps", "nearest separated points found")
    notes, drawn = [], []
    for title, found, z in zip(titles, (descent, nearest), both, strict=True):
        said = _measures(x, found)
        drawn.append(_moves(axes, f"{title}\n{said}", x, z, ids))
        notes.append(f"{title}: {said}")
    figure = panels(
        "HNM Fig. 4: gradient descent beside the nearest separated points",
        drawn,
        columns=2,
        note=_descent_caption(x, ids, descent, nearest),
        legend=class_entries(NAMES, "moved"),
    )
    return Made(save(figure, request.out, request.item), [Page("", notes=notes)])


def _measures(x: Array, found: NearestSeparated) -> str:
    after = diameter(found.points)
    return f"d_haus = {found.value:.3f}, diameter {diameter(x):.2f} → {after:.2f}"


def _descent_caption(
    x: Array, ids: Array, descent: NearestSeparated, nearest: NearestSeparated
) -> str:
    ended = "separated points" if descent.separated else "points that are not separated yet"
    longer = 100.0 * (descent.value / nearest.value - 1.0)
    return (
        f"Twenty points (hard-mined loss {hard_mined_loss(x, ids):.3f}), the longest moves in "
        f"black. Left: gradient descent of the hard-mined triplet loss, as in the paper, ends at "
        f"{ended}. Right: the separated points that come nearest in the Hausdorff-like "
        f"distance (13), which is certified to lie between {nearest.lower_bound:.3f} and "
        f"{nearest.value:.3f}: the descent overestimates it by {longer:.0f} %. Dashed: the "
        "triplet-separated boundary of each class."
    )


def _moves(axes: Axes, title: str, x: Array, z: Array, ids: Array) -> Chart:
    """Points, the stars they go to, and the boundary of each class there."""
    marks = [
        *(mark for c in (0, 1) for mark in boundary(axes, z[ids == c], COLOURS[c])),
        *arrows(axes, x, z, ids),
        *class_points(axes, x, ids),
        *class_points(axes, z, ids, star=True),
    ]
    return panel(axes, title, "arrows from the points to stars", marks)


PLANE_FIGURES = (
    Item.of("fig1", _triplet),
    Item.of("fig2", _nearest),
    Item.of("fig4", _descent),
)


# HNM Fig. 3: the isometric error of five points, and the hardest triplet of the same five.


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
