"""Charts of many runs, each a point, as in HNM Figs 5-12: diameters, collapse rates, R@1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from uncollapse.report.charts.axes import Frame, Scale, figure, legend, mark
from uncollapse.report.markup import Html, number, percent
from uncollapse.report.sweep_points import (
    ZOOM,
    RunPoint,
    cross_legend,
    draw,
    group_legend,
    group_numbers,
    ticks,
    x_scale,
)
from uncollapse.sweep.rates import Rate

__all__ = ["diameter_chart", "rate_chart", "recall_chart"]


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
    values += [*shown.values(), *(run.limit for run in runs if wide)]
    x = x_scale([run.x for run in runs], across)
    y = Scale.around(values, *up, log=wide, zero=not wide)
    frame = Frame(x, y)
    parts: list[str] = [frame.axes(x_label, x_ticks=False), ticks(frame, (run.x for run in runs))]
    parts.append(_region(frame, _means(runs, "limit")))
    parts.append(_path(frame, _means(runs, "start"), "2 4", "var(--soft)"))
    parts.append(_path(frame, shown, "7 4", "var(--s0)"))
    groups = group_numbers(runs)
    parts += [draw(frame, run.x, run.diameter, groups[run.group], run) for run in runs]
    fallen = sum(run.collapsed for run in runs)
    words = [f"{fallen} of {len(runs)} runs collapsed"]
    if len(shown) < len(bounds):
        empty = f"{len(bounds) - len(shown)} of {len(bounds)} {x_label}s"
        words.append(f"(17) says nothing (is at most 0) at {empty}")
    said = [
        f"{x_label} {number(at)}: diameter {number(value)}"
        for at, value in _means(runs, "diameter").items()
    ]
    return figure(
        title,
        ". ".join([*words, *said]),
        Html("".join(parts)),
        small="; ".join([*[small] * bool(small), *words, *["logarithmic scale"] * wide]),
        below=legend([*group_legend(groups), *_line_legend(runs, bool(shown))]),
    )


def rate_chart(title: str, rates: Mapping[float, Rate], *, x_label: str, small: str = "") -> Html:
    """The share of runs that collapsed at each x, with its interval.

    >>> from uncollapse.sweep.rates import wilson
    >>> chart = rate_chart("Collapse", {8: wilson(0, 3), 64: wilson(3, 3)}, x_label="batch size")
    >>> "64: 3 of 3" in chart
    True
    """
    across, up = Frame.area()
    frame = Frame(x_scale(list(rates), across), Scale(0.0, 1.0, *up))
    parts: list[str] = [frame.axes(x_label, x_ticks=False, percent=True), ticks(frame, rates)]
    for x, rate in rates.items():
        at, low, high = frame.x(x), frame.y(rate.low), frame.y(rate.high)
        parts.append(
            f'<path d="M{at} {low}V{high}M{at - 4:g} {low}h8M{at - 4:g} {high}h8" fill="none" '
            f'stroke="var(--s1)" stroke-width="1.6"/>'
        )
        parts.append(mark("diamond", at, frame.y(rate.share), 1, ZOOM))
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
    groups = group_numbers([run for run, _ in runs])
    parts: list[str] = [frame.axes("diameter after training", percent=True)]
    for run, recall in runs:
        parts.append(draw(frame, max(run.diameter, 1e-12), recall, groups[run.group], run))
    best, worst = (f(recall for _, recall in runs) for f in (max, min))
    words = f"{len(runs)} runs, R@1 from {percent(worst)} to {percent(best)}"
    scale = ["logarithmic scale"] * x.log
    return figure(
        title,
        words,
        Html("".join(parts)),
        small=", ".join([*[small] * bool(small), words, *scale]),
        below=legend([*group_legend(groups), *cross_legend([run for run, _ in runs])]),
    )


def _means(runs: Sequence[RunPoint], name: str) -> dict[float, float]:
    found: dict[float, list[float]] = {}
    for run in runs:
        value = getattr(run, name)
        if value is not None:
            found.setdefault(run.x, []).append(value)
    return {x: sum(values) / len(values) for x, values in sorted(found.items())}


def _path(frame: Frame, line: Mapping[float, float], dash: str, colour: str) -> str:
    if not line:
        return ""
    points = [f"{frame.x(x):g} {frame.y(y):g}" for x, y in line.items()]
    if len(points) == 1:  # a short stroke, so that it is seen
        at, height = points[0].split()
        points = [f"{float(at) + aside:g} {height}" for aside in (-9.0, 9.0)]
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


def _line_legend(runs: Sequence[RunPoint], bound: bool) -> list[tuple[str, Html]]:
    def stroke(dash: str, colour: str) -> Html:
        return Html(
            f'<path d="M1 7H29" fill="none" stroke="{colour}" stroke-width="2" '
            f'stroke-dasharray="{dash}"/>'
        )

    region = Html('<rect width="30" height="14" fill="var(--bad)" fill-opacity=".13"/>')
    return [
        *cross_legend(runs),
        *[("bound (17), c = 2", stroke("7 4", "var(--s0)"))] * bound,
        ("before training", stroke("2 4", "var(--soft)")),
        ("collapsed region", region),
    ]
