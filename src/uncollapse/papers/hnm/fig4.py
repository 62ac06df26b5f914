"""HNM Fig. 4: twenty points, where gradient descent takes them, and the nearest separated ones."""

from __future__ import annotations

from uncollapse._base.arrays import Array
from uncollapse.geometry.descent import gradient_descent_separated
from uncollapse.geometry.diameter import diameter
from uncollapse.geometry.nearest import NearestSeparated, nearest_separated
from uncollapse.geometry.separation import hard_mined_loss
from uncollapse.papers._draw import (
    COLOURS,
    arrows,
    boundary,
    caption,
    frame,
    panels,
    reach,
    save,
    scatter,
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
    figure, axes = panels(2, 11.0)
    both = [found.points.numpy() for found in (descent, nearest)]
    clouds = [x, *both, *(reach(both[1][ids == c]) for c in (0, 1))]
    titles = (f"{_STEPS} gradient descent steps", "nearest separated points found")
    notes = []
    for axis, title, found, z in zip(axes, titles, (descent, nearest), both, strict=True):
        corners = frame(axis, clouds, pad=0.03)
        for c in (0, 1):
            boundary(axis, z[ids == c], COLOURS[c], corners)
        arrows(axis, x, z, ids)
        scatter(axis, x, ids, NAMES)
        scatter(axis, z, ids, NAMES, star="moved")
        axis.set_title(f"{title}\n{_measures(x, found)}", fontsize=11)
        notes.append(f"{title}: {_measures(x, found)}")
    caption(figure, _caption(x, ids, descent, nearest), 135)
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
    needs="the extra 'plots'",
    time="seconds",
    make=_make,
)
