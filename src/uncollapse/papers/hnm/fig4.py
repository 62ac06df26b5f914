"""HNM Fig. 4: twenty points, where gradient descent takes them, and the nearest separated ones."""

from __future__ import annotations

from uncollapse._base.arrays import Array
from uncollapse.charts import panels
from uncollapse.geometry.descent import gradient_descent_separated
from uncollapse.geometry.diameter import diameter
from uncollapse.geometry.nearest import NearestSeparated, nearest_separated
from uncollapse.geometry.separation import hard_mined_loss
from uncollapse.papers._draw import (
    COLOURS,
    arrows,
    boundary,
    class_entries,
    class_points,
    panel,
    plane,
    reach,
    save,
)
from uncollapse.papers._item import Item, Made, Request
from uncollapse.papers._page import Page
from uncollapse.papers.hnm._toy import NAMES, twenty_points

__all__ = ["FIG4"]

_STEPS = 50


def _make(request: Request) -> Made:
    x, ids = twenty_points(request.seed)
    descent = gradient_descent_separated(x, ids, steps=_STEPS)
    nearest = nearest_separated(x, ids, seed=request.seed)
    both = [found.points.numpy() for found in (descent, nearest)]
    axes = plane([x, *both, *(reach(both[1][ids == c]) for c in (0, 1))], 390.0, pad=0.03)
    titles = (f"{_STEPS} gradient descent steps", "nearest separated points found")
    notes, drawn = [], []
    for title, found, z in zip(titles, (descent, nearest), both, strict=True):
        marks = [
            *(mark for c in (0, 1) for mark in boundary(axes, z[ids == c], COLOURS[c])),
            *arrows(axes, x, z, ids),
            *class_points(axes, x, ids),
            *class_points(axes, z, ids, star=True),
        ]
        said = _measures(x, found)
        drawn.append(panel(axes, f"{title}\n{said}", "arrows from the points to stars", marks))
        notes.append(f"{title}: {said}")
    figure = panels(
        "HNM Fig. 4: gradient descent beside the nearest separated points",
        drawn,
        columns=2,
        note=_caption(x, ids, descent, nearest),
        legend=class_entries(NAMES, "moved"),
    )
    return Made(save(figure, request.out, "fig4"), [Page("", notes=notes)])


def _measures(x: Array, found: NearestSeparated) -> str:
    after = diameter(found.points)
    return f"d_haus = {found.value:.3f}, diameter {diameter(x):.2f} → {after:.2f}"


def _caption(x: Array, ids: Array, descent: NearestSeparated, nearest: NearestSeparated) -> str:
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


FIG4 = Item(
    name="fig4",
    summary="HNM Fig. 4: what 50 gradient steps reach beside the nearest separated points",
    needs="nothing more",
    time="seconds",
    make=_make,
)
