"""HNM Fig. 2: five points, and the separated points nearest to them in the Hausdorff-like sense."""

from __future__ import annotations

from uncollapse.charts import panels
from uncollapse.geometry.nearest import nearest_separated
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
from uncollapse.papers.hnm._toy import NAMES, five_points

__all__ = ["FIG2"]


def _make(request: Request) -> Made:
    x, ids = five_points(request.seed)
    found = nearest_separated(x, ids, seed=request.seed)
    z = found.points.numpy()
    axes = plane([x, *(reach(z[ids == c]) for c in (0, 1))], 370.0, pad=0.04)
    moved = [
        *(mark for c in (0, 1) for mark in boundary(axes, z[ids == c], COLOURS[c])),
        *arrows(axes, x, z, ids),
        *class_points(axes, x, ids),
        *class_points(axes, z, ids, star=True),
    ]
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
            panel(axes, right, "arrows from the points to stars", moved),
        ],
        columns=2,
        note=caption,
        legend=class_entries(NAMES, "nearest separated"),
    )
    return Made(save(figure, request.out, "fig2"))


FIG2 = Item(
    name="fig2",
    summary="HNM Fig. 2: five points and the nearest triplet-separated ones (d_haus)",
    needs="nothing more",
    time="seconds",
    make=_make,
)
