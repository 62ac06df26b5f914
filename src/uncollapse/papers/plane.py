"""Drawing of labelled points in the plane, shared by the figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from uncollapse import charts
from uncollapse._base.arrays import Array
from uncollapse.charts import Axes, Chart, Entry, Scale
from uncollapse.charts.marks import Group, Line, Mark, Place, Points, Polyline, Rect, Text
from uncollapse.distances import pairwise_distances

# Told apart with every common color vision. Markers differ as well.
COLORS = ("s0", "s1", "s2", "s3")
MARKERS = ("circle", "square", "triangle", "diamond")
DASHED, DOTTED = (6.0, 4.0), (2.0, 3.0)
_SCALE = 2.5  # pixels of a unit in a PNG
_SHRINK = 4.0, 6.0  # an arrow begins and ends beside its markers


def axes_around(clouds: Sequence[Array], width: float, pad: float = 0.08) -> Axes:
    """Axes `width` units wide, as high as everything needs at the same scale, with a margin."""
    everything = np.vstack(clouds)
    low, high = everything.min(axis=0), everything.max(axis=0)
    room = pad * float((high - low).max())
    (left, bottom), (right, top) = (low - room).tolist(), (high + room).tolist()
    height = round(width * (top - bottom) / (right - left), 1)
    return Axes(Scale(left, right, 0.0, width), Scale(bottom, top, height, 0.0))


def panel(axes: Axes, title: str, description: str, marks: Sequence[Mark]) -> Chart:
    """What is drawn on a plane, in a frame."""
    width, height = axes.x.end, axes.y.start
    frame = Rect(0.5, 0.5, width - 1, height - 1, color="line")
    return Chart(title, description, (axes.inside(*marks), frame), width, height)


def class_points(axes: Axes, x: Array, ids: Array, *, star: bool = False) -> list[Mark]:
    """One color and one marker for each class; stars for where they go."""
    marks: list[Mark] = []
    for c in np.unique(ids).tolist():
        places = tuple(axes.at(*point) for point in x[ids == c].tolist())
        marks.append(_look(c, places, "card", star=star))
    return marks


def class_entries(names: Sequence[str], star: str = "") -> list[Entry]:
    """The classes in a legend; with `star`, the word for where they go, the stars as well."""
    sample = ((15.0, 7.0),)
    entries = [Entry(name, (_look(c, sample),)) for c, name in enumerate(names)]
    if star:
        entries += [
            Entry(f"{name}, {star}", (_look(c, sample, star=True),)) for c, name in enumerate(names)
        ]
    return entries


def _look(c: int, places: tuple[Place, ...], edge: str = "none", *, star: bool = False) -> Points:
    if star:
        return Points(places, "star", COLORS[c], 1.5, edge="ink")
    return Points(places, MARKERS[c], COLORS[c], 1.4, edge=edge)


def arrows(axes: Axes, x: Array, z: Array, ids: Array) -> list[Mark]:
    """From each point to where it goes; the longest moves in black."""
    length = np.linalg.norm(z - x, axis=1)
    marks: list[Mark] = []
    for k in range(len(x)):
        start, end = np.array(axes.at(*x[k])), np.array(axes.at(*z[k]))
        long = float(np.linalg.norm(end - start))
        if long <= sum(_SHRINK):
            continue
        unit = (end - start) / long
        begin, tip = (start + _SHRINK[0] * unit).tolist(), (end - _SHRINK[1] * unit).tolist()
        far = length[k] >= 0.999 * length.max()
        color, width, opacity = ("ink", 2.0, 1.0) if far else (COLORS[ids[k]], 1.0, 0.6)
        marks.append(
            Line((begin[0], begin[1]), (tip[0], tip[1]), color, width, (), opacity, arrow=True)
        )
    return marks


def reach(points: Array, alpha: float = 0.0) -> Array:
    """Corners of the box around the triplet-separated boundary of a class."""
    radius = _radii(points, alpha)[:, None]
    return np.vstack([points - radius, points + radius])


def edge(points: Array, alpha: float = 0.0) -> Array:
    """Points along the triplet-separated boundary of a class: arcs about its members."""
    return np.vstack(_arcs(points, alpha))


def boundary(axes: Axes, points: Array, color: str, alpha: float = 0.0) -> list[Mark]:
    """Dashed edge of where a point z of another class may be: HNM (5) for all x, y of the class."""
    unit = axes.x.end / (axes.x.high - axes.x.low)
    discs = tuple(
        Points((axes.at(*point),), "circle", color, radius * unit / 3)
        for point, radius in zip(points.tolist(), _radii(points, alpha).tolist(), strict=True)
    )
    lines = [
        Polyline(tuple(axes.at(*point) for point in arc.tolist()), color, 1.4, DASHED)
        for arc in _arcs(points, alpha)
    ]
    return [Group(discs, opacity=0.07), *lines]


def segment(axes: Axes, x: Array, i: int, j: int, dash: Sequence[float] = ()) -> Line:
    """A line between two points."""
    return Line(axes.at(*x[i]), axes.at(*x[j]), "ink", 1.6, dash)


def side(x: Array, i: int, j: int) -> float:
    """How far two points are from each other."""
    return float(np.linalg.norm(x[i] - x[j]))


def along(x: Array, i: int, j: int) -> Array:
    """Points on the line between two rows."""
    share = np.linspace(0.0, 1.0, 25)[:, None]
    line: Array = x[i] + share * (x[j] - x[i])
    return line


def tags(axes: Axes, x: Array, words: dict[int, str], avoid: list[Array]) -> list[Mark]:
    """A word beside each of these points, clear of all points, of what to avoid, of other words."""
    span = max(axes.x.high - axes.x.low, axes.y.high - axes.y.low)
    taken = np.vstack([x, *avoid])
    turn = np.arange(16) * np.pi / 8
    marks: list[Mark] = []
    for row, word in words.items():
        # A word is wider than high: it needs more room to the sides.
        wide = 0.025 * span + 0.011 * span * len(word) / 2
        spots = x[row] + np.stack([wide * np.cos(turn), 0.05 * span * np.sin(turn)], axis=1)
        shape = np.array([wide / (0.03 * span), 1.0])
        clear = np.linalg.norm((spots[:, None] - taken) / shape, axis=2).min(axis=1)
        best = spots[int(clear.argmax())]
        at, up = axes.at(*best)
        marks.append(Text(at, up + 4, word, 12, "ink", "middle", halo=True))
        taken = np.vstack([taken, best + np.array([[-wide, 0.0], [0.0, 0.0], [wide, 0.0]])])
    return marks


def save(chart: Chart, out: Path, name: str) -> list[Path]:
    """Write PNG and SVG; the same figure is the same file."""
    return [charts.save(chart, out / f"{name}.{kind}", scale=_SCALE) for kind in ("png", "svg")]


def _radii(points: Array, alpha: float) -> Array:
    """How far from each member of the class another class must stay."""
    radius: Array = pairwise_distances(points).numpy().max(axis=1) + alpha
    return radius


def _arcs(points: Array, alpha: float) -> list[Array]:
    """The outline of the discs about the members: of each circle what no other disc covers."""
    radius = _radii(points, alpha)
    turn = np.linspace(0.0, 2.0 * np.pi, 241)
    circle = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    arcs = []
    for centre, r in zip(points, radius, strict=True):
        arc = centre + r * circle
        room = (pairwise_distances(arc, points).numpy() - radius).min(axis=1)
        outside = room >= -1e-6 * radius.max()
        # Pieces of a circle that stand outside, from one point inside to the next.
        cuts = np.nonzero(np.diff(outside.astype(int)))[0] + 1
        parts = zip(np.split(arc, cuts), np.split(outside, cuts), strict=True)
        arcs += [part for part, seen in parts if seen.all() and len(part) > 1]
    return arcs
