"""A run as a point of a chart: its mark, its colour, its place, and the legend for them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from uncollapse.report.charts.axes import MARKS, Frame, Scale, mark
from uncollapse.report.markup import Html, number
from uncollapse.report.style import SERIES

__all__ = [
    "ZOOM",
    "RunPoint",
    "cross_legend",
    "draw",
    "group_legend",
    "group_numbers",
    "ticks",
    "x_scale",
]

ZOOM = 1.25
_KINDS = tuple(kind for kind in MARKS if kind != "cross")  # a cross is a run that collapsed
_GROUPS = 6  # that are told apart


@dataclass(frozen=True)
class RunPoint:
    """A run in a chart: where it stands, how large it began and ended, and what (17) foretold.

    `group` tells runs at the same x apart; `limit` is the diameter below which it has collapsed.
    """

    x: float
    diameter: float
    start: float
    limit: float
    collapsed: bool
    bound: float | None = None
    group: str = ""


def x_scale(values: Sequence[float], across: tuple[int, int]) -> Scale:
    """Batch sizes and dimensions double: logarithmic where they span enough."""
    low, high = min(values), max(values)
    if low > 0 and high >= 4 * low:
        return Scale(low / 1.25, high * 1.25, *across, log=True)
    pad = 0.08 * (high - low) or 1.0
    return Scale(low - pad, high + pad, *across)


def ticks(frame: Frame, values: Iterable[float]) -> str:
    """The values themselves, where there is room for them."""
    parts, free, bottom = [], -math.inf, frame.y.start
    for value in sorted(set(values)):
        at = frame.x(value)
        parts.append(f'<path class="axis" d="M{at} {bottom}v4"/>')
        text = number(value)
        if at - free > 4 * len(text) + 8:
            parts.append(f'<text x="{at}" y="{bottom + 17}" text-anchor="middle">{text}</text>')
            free = at + 4 * len(text)
    return "".join(parts)


def group_numbers(runs: Sequence[RunPoint]) -> dict[str, int]:
    """A number for each group, by which it is coloured; the last is shared by the rest."""
    names = list(dict.fromkeys(run.group for run in runs))
    return {name: min(i, _GROUPS) for i, name in enumerate(names)}


def draw(frame: Frame, x: float, y: float, group: int, run: RunPoint) -> str:
    """The mark of a run at a place."""
    at, up = frame.x(x), frame.y(max(y, 1e-12) if frame.y.log else y)
    kind = "cross" if run.collapsed else _KINDS[group % len(_KINDS)]
    drawn = mark(kind, at, up, group % SERIES, ZOOM)
    return drawn.replace(f"var(--s{group % SERIES})", "var(--bad)") if run.collapsed else drawn


def group_legend(groups: Mapping[str, int]) -> list[tuple[str, Html]]:
    """The groups that have a name."""
    return [
        (name, mark(_KINDS[i % len(_KINDS)], 15, 7, i % SERIES, ZOOM))
        for name, i in groups.items()
        if name and i < _GROUPS
    ]


def cross_legend(runs: Sequence[RunPoint]) -> list[tuple[str, Html]]:
    """The cross, if there is one."""
    if not any(run.collapsed for run in runs):
        return []
    return [("collapsed", Html(mark("cross", 15, 7, 0, ZOOM).replace("--s0", "--bad")))]
