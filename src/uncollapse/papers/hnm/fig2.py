"""HNM Fig. 2: five points, and the separated points nearest to them in the Hausdorff-like sense."""

from __future__ import annotations

from uncollapse.geometry.nearest import nearest_separated
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
from uncollapse.papers.hnm._toy import NAMES, five_points

__all__ = ["FIG2"]


def _make(request: Request) -> Made:
    x, ids = five_points(request.seed)
    found = nearest_separated(x, ids, seed=request.seed)
    z = found.points.numpy()
    figure, (left, right) = panels(2, 10.4)
    clouds = [x, *(reach(z[ids == c]) for c in (0, 1))]
    for axis in (left, right):
        corners = frame(axis, clouds, pad=0.04)
    for c in (0, 1):
        boundary(right, z[ids == c], COLOURS[c], corners)
    scatter(left, x, ids, NAMES)
    arrows(right, x, z, ids)
    scatter(right, x, ids, NAMES)
    scatter(right, z, ids, NAMES, star="nearest separated")
    left.set_title("the points: not separated", fontsize=11)
    right.set_title("the nearest separated points", fontsize=11)
    caption(
        figure,
        f"Left: five points whose classes are not triplet-separated (hard-mined loss "
        f"{hard_mined_loss(x, ids):.3f}). "
        f"Right: the separated points nearest to them (stars). The longest moves, in black, are "
        f"the distance (13): d_haus = {found.value:.3f}; no separated points are nearer than "
        f"{found.lower_bound:.3f}. The stars are separated: no class enters the dashed "
        "triplet-separated boundary of the other.",
        130,
    )
    return Made(save(figure, request.out, "fig2"))


FIG2 = Item(
    name="fig2",
    summary="HNM Fig. 2: five points and the nearest triplet-separated ones (d_haus)",
    needs="the extra 'plots'",
    time="seconds",
    make=_make,
)
