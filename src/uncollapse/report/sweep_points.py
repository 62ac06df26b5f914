"""A run as a point of a chart: its marker, its colour, its place, and the legend for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from uncollapse.charts import Axes, Entry, Scale
from uncollapse.charts.marks import MARKERS, Points
from uncollapse.charts.numbers import number
from uncollapse.charts.theme import SERIES

__all__ = [
    "ZOOM",
    "RunPoint",
    "cross_legend",
    "group_legend",
    "group_numbers",
    "run_markers",
    "value_ticks",
    "x_scale",
]

ZOOM = 1.25
# A cross is a run that collapsed.
_KINDS = tuple(kind for kind in MARKERS if kind not in ("cross", "star"))
_GROUPS = 6  # that are told apart


@dataclass(frozen=True)
class RunPoint:
    """A run in a chart: where it stands, how large it began and ended, and what (17) predicted.

    `group` tells runs at the same x apart; `limit` is the diameter below which it has collapsed.
    """

    x: float
    diameter: float
    start: float
    limit: float
    collapsed: bool
    bound: float | None = None
    group: str = ""


def x_scale(values: Sequence[float], across: tuple[float, float]) -> Scale:
    """Batch sizes and dimensions double: logarithmic where they span enough."""
    low, high = min(values), max(values)
    if low > 0 and high >= 4 * low:
        return Scale(low / 1.25, high * 1.25, *across, "log")
    pad = 0.08 * (high - low) or 1.0
    return Scale(low - pad, high + pad, *across)


def value_ticks(values: Iterable[float]) -> dict[float, str]:
    """The values themselves as ticks."""
    return {value: number(value) for value in sorted(set(values))}


def group_numbers(runs: Sequence[RunPoint]) -> dict[str, int]:
    """A number for each group, by which it is coloured; the last is shared by the rest."""
    names = list(dict.fromkeys(run.group for run in runs))
    return {name: min(i, _GROUPS) for i, name in enumerate(names)}


def run_markers(
    axes: Axes, runs: Sequence[RunPoint], x: Sequence[float], y: Sequence[float]
) -> list[Points]:
    """A marker for each run at x and y, by its group; a red cross for those that collapsed."""
    groups = group_numbers(runs)
    marks = []
    for run, a, b in zip(runs, x, y, strict=True):
        place = axes.at(a, max(b, 1e-12) if axes.y.log else b)
        tip = f"{run.group}: " * bool(run.group) + f"diameter {number(run.diameter)}"
        kind, colour = _look(groups[run.group])
        if run.collapsed:
            kind, colour, tip = "cross", "bad", f"{tip}, collapsed"
        marks.append(Points((place,), kind, colour, ZOOM, tips=(tip,)))
    return marks


def group_legend(groups: Mapping[str, int]) -> list[Entry]:
    """The groups that have a name."""
    return [
        Entry(name, (Points(((15, 7),), *_look(i), ZOOM),))
        for name, i in groups.items()
        if name and i < _GROUPS
    ]


def cross_legend(runs: Sequence[RunPoint]) -> list[Entry]:
    """The cross, if there is one."""
    if not any(run.collapsed for run in runs):
        return []
    return [Entry("collapsed", (Points(((15, 7),), "cross", "bad", ZOOM),))]


def _look(group: int) -> tuple[str, str]:
    return _KINDS[group % len(_KINDS)], f"s{group % SERIES}"
