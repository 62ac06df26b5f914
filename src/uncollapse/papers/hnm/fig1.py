"""HNM Fig. 1: an anchor, a positive, a negative, and the triplet-separated boundary."""

from __future__ import annotations

from uncollapse.charts import panels
from uncollapse.geometry.separation import separation
from uncollapse.papers._draw import (
    COLOURS,
    DASHED,
    boundary,
    class_entries,
    class_points,
    edge,
    panel,
    plane,
    reach,
    save,
)
from uncollapse.papers._item import Item, Made, Request
from uncollapse.papers.hnm._marks import along, hardest_triplet, segment, side, tags
from uncollapse.papers.hnm._toy import NAMES, separated_pair

__all__ = ["FIG1"]


def _make(request: Request) -> Made:
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
    return Made(save(figure, request.out, "fig1"))


FIG1 = Item(
    name="fig1",
    summary="HNM Fig. 1: a triplet and the triplet-separated boundary of a class",
    needs="nothing more",
    time="seconds",
    make=_make,
)
