"""Diameter against batch size or dimension, as in HNM Figs. 5 to 12: every run is a mark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from uncollapse.charts import Axes, Chart, Entry, Scale, panels
from uncollapse.charts.marks import Line, Mark, Points, Rect
from uncollapse.charts.render_svg import hatch
from uncollapse.papers.hnm._point import Point

__all__ = ["draw"]

_LEAST = 1e-4  # a diameter may be 0, which a logarithm does not show
_COLLAPSED = "1 %: collapsed below (0.01 % stands for less)"
_NAMES = {"batch": "batch size N", "dim": "embedding dimension d"}
_UPPER, _LOWER = "diameter of the embedded images", "share of the first diameter left"
_WIDTH, _TALL, _SHORT = 400.0, 270.0, 200.0
# Name, colour, dash and value of each line of means.
_LINES: tuple[tuple[str, str, tuple[float, ...], Callable[[Point], float]], ...] = (
    ("mean diameter after training", "ink", (), lambda p: p.end),
    ("before training", "s7", (2, 4), lambda p: p.start),
    ("bound (17), hardest triplet, c = 2", "s0", (7, 4), lambda p: p.bound),
    ("bound (17), batch-hard mean, c = 2", "s0", (9, 3, 2, 3), lambda p: p.mean_bound),
)


def draw(plots: Sequence[tuple[str, str, Sequence[Point]]], title: str) -> Chart:
    """A column per plot `(title, axis, points)`: above as in the paper, below the share left."""
    upper = [_diameters(heading, axis, points) for heading, axis, points in plots]
    lower = [_shares(axis, points) for _, axis, points in plots]
    every = [point for _, _, points in plots for point in points]
    return panels(title, [*upper, *lower], columns=len(plots), legend=_legend(every))


def _diameters(heading: str, axis: str, points: Sequence[Point]) -> Chart:
    top = max(max(p.start, p.end) for p in points)
    axes = _axes(points, axis, _TALL, Scale(-0.06 * top, 1.08 * top, _TALL - 36, 10))
    at = _values(points, axis)
    marks: list[Mark] = [axes.across(0.0, "line", ())]
    for _, colour, dash, value in _LINES:
        means = [float(np.mean([value(p) for p in points if getattr(p, axis) == x])) for x in at]
        marks.append(axes.line(at, means, colour, dash=dash, width=1.6))
    drawn = (*_regions(axes, points, axis), *_frame(axes, at, axis, _UPPER), axes.inside(*marks))
    marked = _marks(axes, points, axis, lambda p: p.end)
    return Chart(heading, _words(points, axis), (*drawn, *marked), _WIDTH, _TALL)


def _shares(axis: str, points: Sequence[Point]) -> Chart:
    shares = [max(p.left, _LEAST) for p in points]
    low, high = min(0.01, *shares) / 1.4, max(1.0, *shares) * 1.3
    axes = _axes(points, axis, _SHORT, Scale(low, high, _SHORT - 36, 10, "log"))
    ticks = {share: f"{100 * share:g} %" for share in axes.y.ticks(5)}
    marks = [
        *_regions(axes, points, axis),
        *_frame(axes, _values(points, axis), axis, _LOWER, ticks),
        axes.across(0.01, "s1", (2, 3)),
        *_marks(axes, points, axis, lambda p: max(p.left, _LEAST)),
    ]
    return Chart("", "the share of the first diameter left, logarithmic", marks, _WIDTH, _SHORT)


def _axes(points: Sequence[Point], axis: str, height: float, y: Scale) -> Axes:
    edges = _edges(_values(points, axis))
    return Axes(Scale(edges[0], edges[-1], 72.0, _WIDTH - 8, "log"), y)


def _frame(
    axes: Axes, at: Sequence[int], axis: str, label: str, ticks: dict[float, str] | None = None
) -> tuple[Mark, ...]:
    x_ticks = {float(x): str(x) for x in at}
    return axes.frame(_NAMES[axis], label, x_ticks=x_ticks, y_ticks=ticks)


def _marks(
    axes: Axes, points: Sequence[Point], axis: str, value: Callable[[Point], float]
) -> list[Mark]:
    """Runs of one cell stand side by side, so that none hides another."""
    at = _values(points, axis)
    seeds = sorted({p.seed for p in points})
    gap = 0.18 * min(1.0, *np.diff(np.log2(at)), 1.0)
    found: list[Mark] = []
    for p in points:
        shift = gap * (seeds.index(p.seed) - (len(seeds) - 1) / 2)
        place = axes.at(getattr(p, axis) * 2.0**shift, value(p))
        tip = f"N = {p.batch}, d = {p.dim}, seed {p.seed}: {value(p):.3g}"
        found.append(Points((place,), *_look(p.collapsed), tips=(tip,)))
    return found


def _look(collapsed: bool) -> tuple[str, str, float]:
    return ("cross", "s1", 1.2) if collapsed else ("circle", "s2", 1.1)


def _regions(axes: Axes, points: Sequence[Point], axis: str) -> list[Mark]:
    """Red, hatched, where at least half the runs collapsed; green where none did."""
    at = _values(points, axis)
    found: list[Mark] = []
    for (left, right), x in zip(pairwise(_edges(at)), at, strict=True):
        here = [p.collapsed for p in points if getattr(p, axis) == x]
        if 2 * sum(here) >= len(here):
            stripe = axes.columns(left, right, "s1", 0.1)
            found += [stripe, hatch(stripe.x, stripe.y, stripe.width, stripe.height, "s1")]
        elif not any(here):
            found.append(axes.columns(left, right, "s2", 0.1))
    return found


def _legend(points: Sequence[Point]) -> list[Entry]:
    kinds = {False: "a run", True: "a run that collapsed"}
    fell = {p.collapsed for p in points}
    return [
        *(Entry(kinds[k], (Points(((15, 7),), *_look(k)),)) for k in kinds if k in fell),
        *(Entry(name, (Line((1, 7), (29, 7), c, 1.6, dash),)) for name, c, dash, _ in _LINES),
        Entry(_COLLAPSED, (Line((1, 7), (29, 7), "s1", 1.3, (2, 3)),)),
        Entry("no run collapsed", (Rect(0, 0, 30, 14, "s2", 0.1),)),
        Entry(
            "half or more collapsed",
            (Rect(0, 0, 30, 14, "s1", 0.1), hatch(0, 0, 30, 14, "s1", gap=5)),
        ),
    ]


def _words(points: Sequence[Point], axis: str) -> str:
    fell = sum(p.collapsed for p in points)
    values = ", ".join(str(x) for x in _values(points, axis))
    return f"{fell} of {len(points)} runs collapsed; {_NAMES[axis]} {values}"


def _values(points: Sequence[Point], axis: str) -> list[int]:
    return sorted({getattr(p, axis) for p in points})


def _edges(at: Sequence[int]) -> list[float]:
    """Half way, in doublings, between neighbours."""
    log = np.log2(np.asarray(at, dtype=float))
    steps = np.diff(log) if len(log) > 1 else np.array([1.0])
    inner = log[:-1] + steps / 2 if len(log) > 1 else np.array([])
    ends = [log[0] - steps[0] / 2], [log[-1] + steps[-1] / 2]
    return [float(2.0**e) for e in np.concatenate([ends[0], inner, ends[1]])]
