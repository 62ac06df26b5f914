"""A map of points in the plane, told by colour, marker and the class's name at its middle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse._base.table import number
from uncollapse.charts.chart import Chart, Entry, empty
from uncollapse.charts.line_charts import marker_kind
from uncollapse.charts.marks import SERIES, WIDTH, Line, Mark, Place, Points, Polyline, Rect, Text
from uncollapse.charts.text import text_width

__all__ = ["labels_apart", "names_on_map", "scatter"]


def labels_apart(
    places: Sequence[Place], sizes: Sequence[Place], box: tuple[float, float, float, float]
) -> list[Place]:
    """Centres of boxes of these sizes near the places, inside `box`, no two of them overlapping.

    `box` is (left, top, right, bottom). Where they cannot all fit, they overlap as little as the
    steps allow.

    >>> labels_apart([(50, 50), (50, 50)], [(20, 10), (20, 10)], (0, 0, 100, 100))
    [(50.0, 45.0), (50.0, 55.0)]
    """
    at = np.asarray(places, np.float64).reshape(-1, 2).copy()
    half = np.asarray(sizes, np.float64).reshape(-1, 2) / 2
    least, most = np.asarray(box[:2]) + half, np.asarray(box[2:]) - half
    at = np.clip(at, least, np.maximum(least, most))
    for _ in range(400):
        gap = at[None] - at[:, None]  # from i to j
        lap = half[:, None] + half[None] - np.abs(gap)
        both = np.asarray((lap > 1e-6).all(axis=2))
        np.fill_diagonal(both, False)
        if not both.any():
            break
        # Each pair parts along the axis where it takes less; those at one place by their order.
        order = np.sign(np.subtract.outer(np.arange(len(at)), np.arange(len(at)))).T
        direction = np.where(gap == 0, order[..., None], np.sign(gap))
        along = lap.argmin(axis=2)
        push = np.zeros_like(gap)
        i, j = np.nonzero(both)
        k = along[i, j]
        push[i, j, k] = -0.5 * lap[i, j, k] * direction[i, j, k]
        at = np.clip(at + push.sum(axis=1), least, np.maximum(least, most))
    return [(round(float(x), 1), round(float(y), 1)) for x, y in at]


def names_on_map(names: Sequence[str], places: Sequence[Place], side: Place) -> list[Mark]:
    """A name at each place of a map of so many units; a stroke leads from those moved far away."""
    sizes = [(text_width(name, bold=True) + 4, 15.0) for name in names]
    centres = labels_apart(places, sizes, (2.0, 2.0, side[0] - 2.0, side[1] - 2.0))
    marks: list[Mark] = [
        Line((float(x), float(y)), (to_x, to_y), "soft", 0.8)
        for (x, y), (to_x, to_y) in zip(places, centres, strict=True)
        if abs(x - to_x) + abs(y - to_y) > 18
    ]
    for name, (x, y) in zip(names, centres, strict=True):
        marks.append(Text(x, y + 4.3, name, 12.0, "ink", "middle", bold=True, halo=True))
    return marks


_NAMED = 12  # classes drawn in their own colour and marker; more cannot be told apart
_PAD = 18
_SIZE = WIDTH


def scatter(
    title: str,
    points: Array,
    labels: Array | None = None,
    *,
    note: str = "",
    rule: bool = True,
    first: int = 0,
) -> Chart:
    """Points `[N, 2]`, both axes alike. At most twelve classes get a colour; the rest is grey.

    `rule` draws a bar of a round length, for maps whose distances mean something. Colours and
    markers begin with number `first`. Points that are not finite are left out.

    >>> chart = scatter("map", np.array([[0.0, 0.0], [1.0, 1.0]]), np.array(["a", "b"]))
    >>> chart.description
    'A map of 2 points of 2 classes'
    """
    xy = np.asarray(points, np.float64).reshape(-1, 2)
    known = np.isfinite(xy).all(axis=1)
    xy, labels = xy[known], None if labels is None else np.asarray(labels)[known]
    if not len(xy):
        return empty(title, "There are no points to draw.", note=note)
    placed, unit = _placed(xy)
    classes = [] if labels is None else _named(labels)
    groups = [(str(c), placed[labels == c]) for c in classes] if labels is not None else []
    rest = placed if labels is None else placed[~np.isin(labels, classes)]
    marks: list[Mark] = [Rect(0.5, 0.5, _SIZE - 1, _SIZE - 1, colour="grid", round=8)]
    marks += _rule(unit) if rule else []
    if len(rest):
        marks.append(_cloud(rest, "circle", "s0" if labels is None else "s7", 0.5))
    for i, (_, group) in enumerate(groups, first):
        marks.append(_cloud(group, marker_kind(i), f"s{i % SERIES}", 0.8))
    signs = _signs([label for label, _ in groups])
    middles = [(float(x), float(y)) for x, y in (np.median(g, axis=0) for _, g in groups)]
    marks += names_on_map(signs, middles, (_SIZE, _SIZE))
    total = 0 if labels is None else len(np.unique(labels))
    words = f"{len(xy):,} points" + f" of {total:,} class{'es' * (total > 1)}" * bool(total)
    if total > len(groups):
        words += f"; the {len(groups)} with most points are named, the others grey"
    legend = tuple(
        Entry(
            label if sign == label else f"{sign}: {label}",
            (Points(((15, 7),), marker_kind(i), f"s{i % SERIES}", 1.3),),
        )
        for i, (sign, (label, _)) in enumerate(zip(signs, groups, strict=True), first)
    )
    notes = ", ".join(part for part in (note, words) if part)
    return Chart(title, f"A map of {words}", tuple(marks), _SIZE, _SIZE, notes, legend, "map")


def _placed(xy: Array) -> tuple[Array, float]:
    """Points inside the square, and how long one unit of theirs is there."""
    middle = (xy.max(axis=0) + xy.min(axis=0)) / 2
    reach = float(np.abs(xy - middle).max()) or 1.0
    unit = (_SIZE / 2 - _PAD) / reach
    place = (xy - middle) * unit * np.array([1.0, -1.0]) + _SIZE / 2
    return place.round(1), unit


def _named(labels: Array) -> list[Any]:
    classes, counts = np.unique(labels, return_counts=True)
    largest = np.argsort(-counts, kind="stable")[:_NAMED]
    return list(np.sort(classes[largest]).tolist())


def _signs(names: list[str]) -> list[str]:
    """What stands on the map: the names, or letters where those are too long for it."""
    if all(len(name) <= 6 for name in names):
        return names
    return [chr(ord("A") + i) for i in range(len(names))]


def _cloud(places: Array, kind: str, colour: str, opacity: float) -> Points:
    size = 0.9 if len(places) < 300 else 0.7
    return Points(tuple(map(tuple, places.tolist())), kind, colour, size, opacity)


def _rule(unit: float) -> list[Mark]:
    """A bar of a round length: the scale of the map."""
    wanted = _SIZE / 4 / unit
    size = 10.0 ** math.floor(math.log10(wanted))
    length = next(m * size for m in (5, 2, 1) if m * size <= wanted)
    right, base = _SIZE - 10.0, _SIZE - 14.0
    left = right - length * unit
    bar = ((left, base), (left, base + 4), (right, base + 4), (right, base))
    return [
        Polyline(bar, "soft", 1.0),
        Text(right, base - 4, number(length), anchor="end"),
    ]
