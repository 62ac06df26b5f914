"""Charts of many runs, each a point, as in HNM Figs 5-12: diameters, collapse rates, R@1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from uncollapse.charts import Axes, Chart, Entry, Scale, area
from uncollapse.charts.marks import Line, Mark, Points, Polyline, Rect
from uncollapse.charts.numbers import number, percent
from uncollapse.report.sweep_points import (
    ZOOM,
    RunPoint,
    cross_legend,
    group_legend,
    group_numbers,
    run_markers,
    value_ticks,
    x_scale,
)
from uncollapse.sweep.rates import Rate

__all__ = ["diameter_chart", "rate_chart", "recall_chart"]

_DASHED, _DOTTED = (7, 4), (2, 4)


def diameter_chart(title: str, runs: Sequence[RunPoint], *, x_label: str, note: str = "") -> Chart:
    """The diameter after training against x, one point per run; crosses are runs that collapsed.

    Dashed: the bound (17), the mean at each x, where it is above 0. Dotted: the diameter before
    training. Shaded: where a run counts as collapsed.

    >>> runs = [RunPoint(4, 2.0, 3.0, 0.03, False, 1.0), RunPoint(64, 0.01, 3.0, 0.03, True, -2.0)]
    >>> chart = diameter_chart("Diameter", runs, x_label="batch size")
    >>> "1 of 2 runs collapsed" in chart.note, "(is at most 0) at 1 of 2" in chart.note
    (True, True)
    """
    across, up = area()
    bounds = _means(runs, "bound")
    shown = {x: value for x, value in bounds.items() if value > 0}
    values = [max(run.diameter, 1e-12) for run in runs] + [run.start for run in runs]
    wide = min(values) < 0.02 * max(values)
    values += [*shown.values(), *(run.limit for run in runs if wide)]
    x = x_scale([run.x for run in runs], across)
    axes = Axes(x, Scale.around(values, *up, log=wide, zero=not wide))
    marks: list[Mark] = [
        *axes.frame(x_label, x_ticks=value_ticks(run.x for run in runs)),
        _region(axes, _means(runs, "limit")),
        *_mean_line(axes, _means(runs, "start"), _DOTTED, "soft"),
        *_mean_line(axes, shown, _DASHED, "s0"),
        *run_markers(axes, runs, [run.x for run in runs], [run.diameter for run in runs]),
    ]
    words = [f"{sum(run.collapsed for run in runs)} of {len(runs)} runs collapsed"]
    if len(shown) < len(bounds):
        empty = f"{len(bounds) - len(shown)} of {len(bounds)} {x_label}s"
        words.append(f"(17) says nothing (is at most 0) at {empty}")
    said = [
        f"{x_label} {number(at)}: diameter {number(value)}"
        for at, value in _means(runs, "diameter").items()
    ]
    return Chart(
        title,
        ". ".join([*words, *said]),
        marks,
        note="; ".join([*[note] * bool(note), *words, *["logarithmic scale"] * wide]),
        legend=(*group_legend(group_numbers(runs)), *_line_legend(runs, bool(shown))),
    )


def rate_chart(title: str, rates: Mapping[float, Rate], *, x_label: str, note: str = "") -> Chart:
    """The share of runs that collapsed at each x, with its interval.

    >>> from uncollapse.sweep.rates import wilson
    >>> chart = rate_chart("Collapse", {8: wilson(0, 3), 64: wilson(3, 3)}, x_label="batch size")
    >>> chart.description
    'Share of runs that collapsed by batch size. 8: 0 of 3, 64: 3 of 3'
    """
    across, up = area()
    axes = Axes(x_scale(list(rates), across), Scale(0.0, 1.0, *up))
    marks: list[Mark] = list(axes.frame(x_label, x_ticks=value_ticks(rates), share=True))
    for x, rate in rates.items():
        marks.append(axes.error_bar(x, rate.low, rate.high, "s1"))
        tip = f"{number(x)}: {rate.count} of {rate.total}"
        marks.append(Points((axes.at(x, rate.share),), "diamond", "s1", ZOOM, tips=(tip,)))
    said = [f"{number(x)}: {rate.count} of {rate.total}" for x, rate in rates.items()]
    words = f"Share of runs that collapsed by {x_label}. {', '.join(said)}"
    notes = ", ".join([*[note] * bool(note), "95 % intervals (Wilson)"])
    return Chart(title, words, marks, note=notes)


def recall_chart(title: str, runs: Sequence[tuple[RunPoint, float]], *, note: str = "") -> Chart:
    """R@1 of each run against the diameter it ended with.

    >>> run = RunPoint(4, 2.0, 3.0, 0.03, False)
    >>> recall_chart("R@1", [(run, 0.9)]).description[:7]
    '1 runs,'
    """
    across, up = area()
    points, recalls = [run for run, _ in runs], [recall for _, recall in runs]
    sizes = [max(run.diameter, 1e-12) for run in points]
    x = Scale.around(sizes, *across, log=None, zero=True)
    axes = Axes(x, Scale(0.0, max(1.0, *recalls), *up))
    words = f"{len(runs)} runs, R@1 from {percent(min(recalls))} to {percent(max(recalls))}"
    return Chart(
        title,
        words,
        (
            *axes.frame("diameter after training", share=True),
            *run_markers(axes, points, sizes, recalls),
        ),
        note=", ".join([*[note] * bool(note), words, *["logarithmic scale"] * x.log]),
        legend=(*group_legend(group_numbers(points)), *cross_legend(points)),
    )


def _means(runs: Sequence[RunPoint], name: str) -> dict[float, float]:
    found: dict[float, list[float]] = {}
    for run in runs:
        value = getattr(run, name)
        if value is not None:
            found.setdefault(run.x, []).append(value)
    return {x: sum(values) / len(values) for x, values in sorted(found.items())}


def _mean_line(
    axes: Axes, line: Mapping[float, float], dash: Sequence[float], colour: str
) -> list[Mark]:
    if len(line) == 1:  # a short stroke, so that it is seen
        ((x, y),) = (axes.at(*pair) for pair in line.items())
        return [Line((x - 9, y), (x + 9, y), colour, 2.0, dash)]
    return [axes.line(list(line), list(line.values()), colour, dash=dash)] if line else []


def _region(axes: Axes, limits: Mapping[float, float]) -> Polyline:
    """All below the limit, over the whole width."""
    low = axes.y.low if axes.y.log else 0.0
    tops = [axes.at(x, max(value, low)) for x, value in limits.items()]
    left, right, floor = axes.x.start, axes.x.end, axes.y.start
    outline = ((left, floor), (left, tops[0][1]), *tops, (right, tops[-1][1]), (right, floor))
    return Polyline(outline, "none", 0, closed=True, fill="bad", fill_opacity=0.13)


def _line_legend(runs: Sequence[RunPoint], bound: bool) -> list[Entry]:
    def stroke(dash: Sequence[float], colour: str) -> tuple[Mark, ...]:
        return (Line((1, 7), (29, 7), colour, 2.0, dash),)

    return [
        *cross_legend(runs),
        *[Entry("bound (17), c = 2", stroke(_DASHED, "s0"))] * bound,
        Entry("before training", stroke(_DOTTED, "soft")),
        Entry("collapsed region", (Rect(0, 0, 30, 14, "bad", 0.13),)),
    ]
