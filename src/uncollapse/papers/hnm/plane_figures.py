"""HNM Figs. 1, 2 and 4: triplets, boundaries and the nearest separated points in the plane."""

from __future__ import annotations

from uncollapse._base.arrays import Array
from uncollapse.charts import Axes, Chart, panels
from uncollapse.geometry.diameters import diameter
from uncollapse.geometry.nearest import (
    NearestSeparated,
    gradient_descent_separated,
    nearest_separated,
)
from uncollapse.geometry.triplet_separation import hard_mined_loss, separation
from uncollapse.papers._draw import (
    COLOURS,
    DASHED,
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
from uncollapse.papers._item import Item, Made, Request
from uncollapse.papers._page import Page
from uncollapse.papers.hnm._examples import (
    NAMES,
    five_points,
    hardest_triplet,
    separated_pair,
    twenty_points,
)

__all__ = ["PLANE_FIGURES"]

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
