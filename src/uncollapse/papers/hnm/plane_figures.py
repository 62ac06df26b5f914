"""HNM Figs. 1 to 4: triplets, boundaries and the nearest separated points in the plane."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse.charts import Axes, Chart, panels
from uncollapse.charts.marks import Line, Mark, Text, brace
from uncollapse.distances import pairwise_distances
from uncollapse.geometry import (
    best_isometry,
    diameter,
    gradient_descent_separated,
    hard_mined_loss,
    nearest_separated,
    separation,
)
from uncollapse.papers import plane
from uncollapse.papers.hnm.claims import (
    NAMES,
    five_points,
    hardest_triplet,
    separated_pair,
    twenty_points,
)
from uncollapse.papers.items import ItemPage, Made, Request

_STEPS = 50  # of gradient descent, as in the paper


def triplet(request: Request) -> Made:
    """HNM Fig. 1."""
    x, ids = separated_pair(request.seed, 0.25)
    # The triplet is drawn for class A, whose boundary is shown.
    rows = hardest_triplet(x, ids, of_class=0)
    near, far = plane.side(x, rows[0], rows[1]), plane.side(x, rows[0], rows[2])
    own = x[ids == 0]
    axes = plane.axes_around([x, plane.reach(own)], 500.0)
    drawn = [
        *plane.boundary(axes, own, plane.COLORS[0]),
        *_drawn_triplet(axes, x, ids, rows, [plane.edge(own)]),
    ]
    caption = (
        f"An anchor with its farthest positive (solid, {near:.2f}) and its nearest negative "
        f"(dashed, {far:.2f}). The dashed contour is the triplet-separated boundary of class A: "
        "(5) with margin 0 for all its points. Class B lies outside it, so every triplet with an "
        "anchor in class A has loss 0. Over both classes the separation is "
        f"{separation(x, ids).margin:.2f}."
    )
    title = "HNM Fig. 1: a triplet and the triplet-separated boundary of a class"
    shown = plane.panel(axes, "", "the triplet and the boundary", drawn)
    return Made(_save(request, title, [shown], caption))


def _save(
    request: Request, title: str, shown: Sequence[Chart], caption: str, star: str = ""
) -> list[Path]:
    """The panels side by side, over a legend of the classes; `star` says where the points go."""
    legend = plane.class_entries(NAMES, star)
    figure = panels(title, shown, columns=len(shown), note=caption, legend=legend)
    return plane.save(figure, request.out, request.item)


def nearest(request: Request) -> Made:
    """HNM Fig. 2."""
    x, ids = five_points(request.seed)
    separated = nearest_separated(x, ids, seed=request.seed)
    z = separated.points.numpy()
    axes = plane.axes_around([x, *(plane.reach(z[ids == c]) for c in (0, 1))], 370.0, pad=0.04)
    caption = (
        f"Left: five points whose classes are not triplet-separated (hard-mined loss "
        f"{hard_mined_loss(x, ids):.3f}). "
        f"Right: the separated points nearest to them (stars). The longest moves, in black, are "
        f"the distance (13): d_haus = {separated.value:.3f}; no separated points are nearer than "
        f"{separated.lower_bound:.3f}. The stars are separated: no class enters the dashed "
        "triplet-separated boundary of the other."
    )
    points, words = plane.class_points(axes, x, ids), "five points of two classes"
    left = plane.panel(axes, "the points: not separated", words, points)
    right = _moves(axes, "the nearest separated points", x, z, ids)
    title = "HNM Fig. 2: five points and the nearest triplet-separated ones"
    return Made(_save(request, title, [left, right], caption, "nearest separated"))


def descent(request: Request) -> Made:
    """HNM Fig. 4."""
    x, ids = twenty_points(request.seed)
    reached = gradient_descent_separated(x, ids, steps=_STEPS)
    best = nearest_separated(x, ids, seed=request.seed)
    both = [solution.points.numpy() for solution in (reached, best)]
    clouds = [x, *both, *(plane.reach(both[1][ids == c]) for c in (0, 1))]
    axes = plane.axes_around(clouds, 390.0, pad=0.03)
    titles = (f"{_STEPS} gradient descent steps", "nearest separated points found")
    notes, drawn = [], []
    for title, solution, z in zip(titles, (reached, best), both, strict=True):
        sizes = f"diameter {diameter(x):.2f} → {diameter(z):.2f}"
        measures = f"d_haus = {solution.value:.3f}, {sizes}"
        drawn.append(_moves(axes, f"{title}\n{measures}", x, z, ids))
        notes.append(f"{title}: {measures}")
    ended = "separated points" if reached.separated else "points that are not separated yet"
    longer = 100.0 * (reached.value / best.value - 1.0)
    caption = (
        f"Twenty points (hard-mined loss {hard_mined_loss(x, ids):.3f}), the longest moves in "
        f"black. Left: gradient descent of the hard-mined triplet loss, as in the paper, ends at "
        f"{ended}. Right: the separated points that come nearest in the Hausdorff-like "
        f"distance (13), which is certified to lie between {best.lower_bound:.3f} and "
        f"{best.value:.3f}: the descent overestimates it by {longer:.0f} %. Dashed: the "
        "triplet-separated boundary of each class."
    )
    title = "HNM Fig. 4: gradient descent beside the nearest separated points"
    return Made(_save(request, title, drawn, caption, "moved"), [ItemPage("", notes=notes)])


def _moves(axes: Axes, title: str, x: Array, z: Array, ids: Array) -> Chart:
    """Points, the stars they go to, and the boundary of each class there."""
    marks = [
        *(mark for c in (0, 1) for mark in plane.boundary(axes, z[ids == c], plane.COLORS[c])),
        *plane.arrows(axes, x, z, ids),
        *plane.class_points(axes, x, ids),
        *plane.class_points(axes, z, ids, star=True),
    ]
    return plane.panel(axes, title, "arrows from the points to stars", marks)


def isometric_error(request: Request) -> Made:
    """HNM Fig. 3: the isometric error of five points, and the hardest triplet of the same five."""
    x, ids = five_points(request.seed)
    separated = nearest_separated(x, ids, objective="iso", seed=request.seed)
    # An isometric error does not see a turn or a shift: lay the stars over the points.
    raw = separated.points.numpy()
    z = best_isometry(raw, x, norm="l2")(raw)
    anchor, positive, negative = hardest_triplet(x, ids)
    both = np.vstack([x, z])
    extent = float(np.ptp(both, axis=0).max())
    base = both.min(axis=0) - np.array([0.0, 0.42 * extent])
    clouds = [both, base[None], base[None] + np.array([1.45 * extent, 0.0])]
    axes = plane.axes_around(clouds, 370.0, pad=0.09)
    pair = _largest_change(x, z, (anchor, positive), (anchor, negative))
    before, after = plane.side(x, *pair), plane.side(z, *pair)
    near, far = plane.side(x, anchor, positive), plane.side(x, anchor, negative)
    change = [
        plane.segment(axes, x, *pair),
        plane.segment(axes, z, *pair, plane.DOTTED),
        *(
            Line(axes.at(*start), axes.at(*end), plane.COLORS[c], opacity=0.6)
            for start, end, c in zip(x, z, ids, strict=True)
        ),
        *plane.class_points(axes, x, ids),
        *plane.class_points(axes, z, ids, star=True),
        *_bars(axes, [("before", before, ()), ("after", after, plane.DOTTED)], base, extent),
    ]
    hardest = [
        *_drawn_triplet(axes, x, ids, (anchor, positive, negative)),
        *_bars(axes, [("positive", near, ()), ("negative", far, plane.DASHED)], base, extent),
    ]
    caption = (
        f"Left: the separated points whose distances differ least from the given ones (stars, laid "
        f"over the points). The pair shown changes most: the two bars are its distance before and "
        f"after, and the brace is d_iso (15); no separated points do better than "
        f"{separated.lower_bound:.3f}. Right: the triplet that hard negative mining picks; the "
        "brace, farthest positive minus nearest negative, is its loss (4) at margin 0. Here "
        f"d_iso / loss = {separated.value / (near - far):.3f}; it is never below 1/2."
    )
    heading, words = f"isometric error: d_iso = {separated.value:.3f}", "the pair that changes most"
    left = plane.panel(axes, heading, f"{words}, before and after", change)
    words = "the anchor with its farthest positive and nearest negative"
    right = plane.panel(axes, f"hardest triplet: loss = {near - far:.3f}", words, hardest)
    title = "HNM Fig. 3: the isometric error and the hardest triplet of five points"
    return Made(_save(request, title, [left, right], caption, "nearest separated"))


def _largest_change(x: Array, z: Array, *preferred: tuple[int, int]) -> tuple[int, int]:
    """The pair whose distance changes most; among equals, one of the hardest triplet."""
    change = np.abs(pairwise_distances(x).numpy() - pairwise_distances(z).numpy())
    for i, j in preferred:
        if change[i, j] >= 0.999 * change.max():
            return i, j
    row, column = np.unravel_index(int(change.argmax()), change.shape)
    return int(row), int(column)


def _drawn_triplet(
    axes: Axes, x: Array, ids: Array, rows: tuple[int, int, int], avoid: Sequence[Array] = ()
) -> list[Mark]:
    """All points, and the named triplet among them with its two sides."""
    anchor, positive, negative = rows
    words = dict(zip(rows, ("anchor", "positive", "negative"), strict=True))
    sides = [plane.along(x, anchor, positive), plane.along(x, anchor, negative)]
    return [
        plane.segment(axes, x, anchor, positive),
        plane.segment(axes, x, anchor, negative, plane.DASHED),
        *plane.class_points(axes, x, ids),
        *plane.tags(axes, x, words, [*sides, *avoid]),
    ]


def _bars(
    axes: Axes, bars: Sequence[tuple[str, float, Sequence[float]]], base: Array, extent: float
) -> list[Mark]:
    """Two lengths drawn to scale under the points, and a brace over their difference."""
    start = base[0] + 0.2 * extent
    marks: list[Mark] = []
    for k, (word, length, dash) in enumerate(bars):
        height = base[1] + (0.0 if k else 0.09 * extent)
        left, y = axes.at(start, height)
        right = axes.x(start + length)
        marks.append(Line((left, y), (right, y), "ink", 2.2, dash))
        marks.append(Text(left - 6, y + 4, word, 11, "ink", "end"))
        marks.append(Text(right + 6, y + 4, f"{length:.3f}", 11, "ink"))
    low, high = sorted(length for _, length, _ in bars)
    left, foot = axes.at(start + low, base[1] + 0.13 * extent)
    right, top = axes.at(start + high, base[1] + 0.18 * extent)
    marks.append(brace(left, right, foot, foot - top))
    middle, text = (left + right) / 2, f"{high - low:.3f}"
    marks.append(Text(middle, top - 5, text, 12, "ink", "middle", bold=True))
    return marks
