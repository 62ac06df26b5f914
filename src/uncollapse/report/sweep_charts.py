"""Charts of many runs, each a point, as in HNM Figs 5-12: diameters, collapse rates, R@1."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from uncollapse.report.charts.axes import MARKS, Frame, Scale, figure, legend, mark
from uncollapse.report.markup import Html, number, percent
from uncollapse.report.style import SERIES
from uncollapse.sweep.rates import Rate

__all__ = ["RunPoint", "diameter_chart", "rate_chart", "recall_chart"]

_KINDS = tuple(kind for kind in MARKS if kind != "cross")  # a cross is a run that collapsed
_GROUPS = 6  # that are told apart
_ZOOM = 1.25


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


def diameter_chart(title: str, runs: Sequence[RunPoint], *, x_label: str, small: str = "") -> Html:
    """The diameter after training against x, a point a run; crosses are runs that collapsed.

    Dashed: the bound (17), the mean at each x, where it is above 0. Dotted: the diameter before
    training. Shaded: where a run counts as collapsed.

    >>> runs = [RunPoint(4, 2.0, 3.0, 0.03, False, 1.0), RunPoint(64, 0.01, 3.0, 0.03, True, -2.0)]
    >>> chart = diameter_chart("Diameter", runs, x_label="batch size")
    >>> "1 of 2 runs collapsed" in chart, "says nothing (is at most 0) at 1 of 2" in chart
    (True, True)
    """
    across, up = Frame.area()
    bounds = _means(runs, "bound")
    shown = {x: value for x, value in bounds.items() if value > 0}
    values = [max(run.diameter, 1e-12) for run in runs] + [run.start for run in runs]
    wide = min(values) < 0.02 * max(values)
    values += [value for value in shown.values() if wide or value > 0]
    values += [run.limit for run in runs] if wide else []
    x = _x_scale([run.x for run in runs], across)
    y = Scale.around(values, *up, log=wide, zero=not wide)
    frame = Frame(x, y)
    parts: list[str] = [frame.axes(x_label, x_ticks=False), _x_numbers(frame, runs)]
    parts.append(_region(frame, _means(runs, "limit")))
    parts.append(_path(frame, _means(runs, "start"), "2 4", "var(--soft)"))
    parts.append(_path(frame, shown, "7 4", "var(--s0)"))
    groups = _groups(runs)
    parts += [_point(frame, run.x, run.diameter, groups[run.group], run) for run in runs]
    fallen = sum(run.collapsed for run in runs)
    words = [f"{fallen} of {len(runs)} runs collapsed"]
    if len(shown) < len(bounds):
        words.append(f"(17) says nothing (is at most 0) at {len(bounds) - len(shown)} of them")
        words[-1] = words[-1].replace("them", f"{len(bounds)} {x_label}s")
    said = [
        f"{x_label} {number(at)}: diameter {number(value)}"
        for at, value in _means(runs, "diameter").items()
    ]
    return figure(
        title,
        ". ".join([*words, *said]),
        Html("".join(parts)),
        small="; ".join([*[small] * bool(small), *words, *["logarithmic scale"] * wide]),
        below=legend([*_group_legend(groups), *_line_legend(runs, bool(shown))]),
    )


def rate_chart(title: str, rates: Mapping[float, Rate], *, x_label: str, small: str = "") -> Html:
    """The share of runs that collapsed at each x, with its interval.

    >>> from uncollapse.sweep.rates import wilson
    >>> chart = rate_chart("Collapse", {8: wilson(0, 3), 64: wilson(3, 3)}, x_label="batch size")
    >>> "64: 3 of 3" in chart
    True
    """
    across, up = Frame.area()
    frame = Frame(_x_scale(list(rates), across), Scale(0.0, 1.0, *up))
    parts: list[str] = [frame.axes(x_label, x_ticks=False, percent=True), _ticks(frame, rates)]
    for x, rate in rates.items():
        at, low, high = frame.x(x), frame.y(rate.low), frame.y(rate.high)
        parts.append(
            f'<path d="M{at} {low}V{high}M{at - 4:g} {low}h8M{at - 4:g} {high}h8" fill="none" '
            f'stroke="var(--s1)" stroke-width="1.6"/>'
        )
        parts.append(mark("diamond", at, frame.y(rate.share), 1, _ZOOM))
    said = [f"{number(x)}: {rate.count} of {rate.total}" for x, rate in rates.items()]
    words = f"Share of runs that collapsed by {x_label}. {', '.join(said)}"
    note = ", ".join([*[small] * bool(small), "95 % intervals (Wilson)"])
    return figure(title, words, Html("".join(parts)), small=note)


def recall_chart(title: str, runs: Sequence[tuple[RunPoint, float]], *, small: str = "") -> Html:
    """R@1 of each run against the diameter it ended with.

    >>> run = RunPoint(4, 2.0, 3.0, 0.03, False)
    >>> "1 runs" in recall_chart("R@1", [(run, 0.9)])
    True
    """
    across, up = Frame.area()
    sizes = [max(run.diameter, 1e-12) for run, _ in runs]
    x = Scale.around(sizes, *across, log=None, zero=True)
    frame = Frame(x, Scale(0.0, max(1.0, *(recall for _, recall in runs)), *up))
    groups = _groups([run for run, _ in runs])
    parts: list[str] = [frame.axes("diameter after training", percent=True)]
    for run, recall in runs:
        parts.append(_point(frame, max(run.diameter, 1e-12), recall, groups[run.group], run))
    best, worst = (f(recall for _, recall in runs) for f in (max, min))
    words = f"{len(runs)} runs, R@1 from {percent(worst)} to {percent(best)}"
    scale = ["logarithmic scale"] * x.log
    return figure(
        title,
        words,
        Html("".join(parts)),
        small=", ".join([*[small] * bool(small), words, *scale]),
        below=legend([*_group_legend(groups), *_cross_legend([run for run, _ in runs])]),
    )


def _x_scale(values: Sequence[float], across: tuple[int, int]) -> Scale:
    """Batch sizes and dimensions double: logarithmic where they span enough."""
    low, high = min(values), max(values)
    if low > 0 and high >= 4 * low:
        return Scale(low / 1.25, high * 1.25, *across, log=True)
    pad = 0.08 * (high - low) or 1.0
    return Scale(low - pad, high + pad, *across)


def _x_numbers(frame: Frame, runs: Sequence[RunPoint]) -> str:
    return _ticks(frame, {run.x: None for run in runs})


def _ticks(frame: Frame, values: Mapping[float, object]) -> str:
    """The values themselves, where there is room for them."""
    parts, free, bottom = [], -math.inf, frame.y.start
    for value in sorted(values):
        at = frame.x(value)
        parts.append(f'<path class="axis" d="M{at} {bottom}v4"/>')
        text = number(value)
        if at - free > 4 * len(text) + 8:
            parts.append(f'<text x="{at}" y="{bottom + 17}" text-anchor="middle">{text}</text>')
            free = at + 4 * len(text)
    return "".join(parts)


def _means(runs: Sequence[RunPoint], name: str) -> dict[float, float]:
    found: dict[float, list[float]] = {}
    for run in runs:
        value = getattr(run, name)
        if value is not None:
            found.setdefault(run.x, []).append(value)
    return {x: sum(values) / len(values) for x, values in sorted(found.items())}


def _groups(runs: Sequence[RunPoint]) -> dict[str, int]:
    names = list(dict.fromkeys(run.group for run in runs))
    return {name: min(i, _GROUPS) for i, name in enumerate(names)}


def _point(frame: Frame, x: float, y: float, group: int, run: RunPoint) -> str:
    at, up = frame.x(x), frame.y(max(y, 1e-12) if frame.y.log else y)
    kind = "cross" if run.collapsed else _KINDS[group % len(_KINDS)]
    drawn = mark(kind, at, up, group % SERIES, _ZOOM)
    return drawn.replace(f"var(--s{group % SERIES})", "var(--bad)") if run.collapsed else drawn


def _path(frame: Frame, line: Mapping[float, float], dash: str, colour: str) -> str:
    if not line:
        return ""
    points = [f"{frame.x(x):g} {frame.y(y):g}" for x, y in line.items()]
    if len(points) == 1:  # a short stroke, so that it is seen
        points.append(f"{frame.x(next(iter(line))) + 14:g} {points[0].split()[1]}")
    return (
        f'<path d="M{"L".join(points)}" fill="none" stroke="{colour}" stroke-width="2" '
        f'stroke-dasharray="{dash}"/>'
    )


def _region(frame: Frame, limits: Mapping[float, float]) -> str:
    """All below the limit, over the whole width."""
    low = frame.y.low if frame.y.log else 0.0
    tops = [(frame.x(x), frame.y(max(value, low))) for x, value in limits.items()]
    left, right, floor = frame.x.start, frame.x.end, frame.y.start
    outline = [(left, floor), (left, tops[0][1]), *tops, (right, tops[-1][1]), (right, floor)]
    path = "L".join(f"{a:g} {b:g}" for a, b in outline)
    return f'<path d="M{path}z" fill="var(--bad)" fill-opacity=".13"/>'


def _group_legend(groups: Mapping[str, int]) -> list[tuple[str, Html]]:
    return [
        (name, mark(_KINDS[i % len(_KINDS)], 15, 7, i % SERIES, _ZOOM))
        for name, i in groups.items()
        if name and i < _GROUPS
    ]


def _cross_legend(runs: Sequence[RunPoint]) -> list[tuple[str, Html]]:
    if not any(run.collapsed for run in runs):
        return []
    return [("collapsed", Html(mark("cross", 15, 7, 0, _ZOOM).replace("--s0", "--bad")))]


def _line_legend(runs: Sequence[RunPoint], bound: bool) -> list[tuple[str, Html]]:
    def stroke(dash: str, colour: str) -> Html:
        return Html(
            f'<path d="M1 7H29" fill="none" stroke="{colour}" stroke-width="2" '
            f'stroke-dasharray="{dash}"/>'
        )

    region = Html('<rect width="30" height="14" fill="var(--bad)" fill-opacity=".13"/>')
    return [
        *_cross_legend(runs),
        *[("bound (17), c = 2", stroke("7 4", "var(--s0)"))] * bound,
        ("before training", stroke("2 4", "var(--soft)")),
        ("collapsed region", region),
    ]
