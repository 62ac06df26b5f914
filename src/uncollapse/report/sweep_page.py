"""The report of a sweep: one page with every chart, a Markdown table, each chart as a file."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uncollapse._base.check import InputError
from uncollapse._base.files import write_text
from uncollapse._base.table import number, percent
from uncollapse.charts import Axes, Chart, Entry, Scale, area, heatmap, save
from uncollapse.charts.marks import MARKERS, SERIES, Line, Mark, Points, Polyline, Rect
from uncollapse.health import Thresholds
from uncollapse.metrics.intervals import Interval, wilson_interval
from uncollapse.report.page import Cell, Page, Table, fill, verdict_cell
from uncollapse.report.run_page import config_content
from uncollapse.sweep import Sweep, load_sweep
from uncollapse.sweep.results import primary_recall
from uncollapse.sweep.spec import short_names

__all__ = [
    "ZOOM",
    "Facet",
    "Row",
    "RunPoint",
    "SweepView",
    "cross_legend",
    "diameter_chart",
    "ended_below",
    "failure_table",
    "group_legend",
    "group_numbers",
    "markdown_content",
    "rate_chart",
    "read_view",
    "recall_chart",
    "recall_name",
    "run_markers",
    "run_table",
    "sweep_content",
    "sweep_report",
    "value_ticks",
    "x_scale",
]


# A run as a point of a chart: its marker, its colour, its place, and the legend for them.

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


# Charts of many runs, each a point, as in HNM Figs 5-12: diameters, collapse rates, R@1.

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


def rate_chart(
    title: str, rates: Mapping[float, Interval], *, x_label: str, note: str = ""
) -> Chart:
    """The share of runs that collapsed at each x, with its interval.

    >>> rates = {8: wilson_interval(0 / 3, 3), 64: wilson_interval(3 / 3, 3)}
    >>> chart = rate_chart("Collapse", rates, x_label="batch size")
    >>> chart.description
    'Share of runs that collapsed by batch size. 8: 0 of 3, 64: 3 of 3'
    """
    across, up = area()
    axes = Axes(x_scale(list(rates), across), Scale(0.0, 1.0, *up))
    marks: list[Mark] = list(axes.frame(x_label, x_ticks=value_ticks(rates), share=True))
    for x, rate in rates.items():
        marks.append(axes.error_bar(x, rate.low, rate.high, "s1"))
        tip = f"{number(x)}: {_count(rate)}"
        marks.append(Points((axes.at(x, rate.value),), "diamond", "s1", ZOOM, tips=(tip,)))
    said = [f"{number(x)}: {_count(rate)}" for x, rate in rates.items()]
    words = f"Share of runs that collapsed by {x_label}. {', '.join(said)}"
    notes = ", ".join([*[note] * bool(note), "95 % intervals (Wilson)"])
    return Chart(title, words, marks, note=notes)


def _count(rate: Interval) -> str:
    return f"{round(rate.value * rate.units)} of {rate.units}"


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


# The table of a sweep as it is drawn: rows read back, and split into what one chart compares.

Row = Mapping[str, Any]
_BATCH = ("batch.p", "batch.k", "batch.size")
_LIMIT = Thresholds().collapse_ratio


@dataclass(frozen=True)
class Facet:
    """Runs that differ only along x (and in their seeds); `fixed` says what they share."""

    x_label: str
    fixed: str
    rows: tuple[Row, ...]
    points: tuple[RunPoint, ...]


@dataclass(frozen=True)
class SweepView:
    """A sweep with the rows of its table; numbers are numbers again, what is missing is None."""

    folder: Path
    sweep: Sweep
    rows: tuple[Row, ...]

    @property
    def done(self) -> list[Row]:
        """Runs with an outcome to draw."""
        return [row for row in self.rows if row.get("diameter") is not None]

    def facets(self) -> list[Facet]:
        """One for each axis of numbers and each setting of the others; P and K are one axis."""
        axes = [a for a in self.sweep.axes if a not in _BATCH and self._numeric(a)]
        found: list[Facet] = []
        if any(axis in _BATCH for axis in self.sweep.axes):
            found += self._split(_BATCH, "batch size", self.batch_size, self._p_group)
        for axis in axes:
            name = axis.rpartition(".")[2]
            label = "dimension" if axis == "model.dim" else name

            def value(row: Row, axis: str = axis) -> float:
                return float(row[axis])

            found += self._split((axis,), label, value, lambda _: "")
        return found

    def shapes(self) -> list[Facet]:
        """The facets that hold a grid of P by K."""
        if not {"batch.p", "batch.k"} <= set(self.sweep.axes):
            return []
        facets = self._split(_BATCH, "batch size", self.batch_size, self._p_group)
        return [one for one in facets if len({row["batch.k"] for row in one.rows}) > 1]

    def batch_size(self, row: Row) -> float:
        """P x K, or the size of a uniform batch."""
        c = self.sweep.base.batch
        if row.get("batch.sampler", c.sampler) == "uniform":
            return float(row.get("batch.size", c.size))
        return float(row.get("batch.p", c.p)) * float(row.get("batch.k", c.k))

    def _split(
        self,
        along: Sequence[str],
        label: str,
        x: Callable[[Row], float],
        group: Callable[[Row], str],
    ) -> list[Facet]:
        # The trials of a search share no settings: all are drawn together.
        searched = self.sweep.search is not None
        others = [axis for axis in self.sweep.axes if axis not in along and not searched]
        short = short_names(self.sweep.axes)
        parts: dict[tuple[Any, ...], list[Row]] = {}
        for row in self.done:
            parts.setdefault(tuple(row[axis] for axis in others), []).append(row)
        found = []
        for values, rows in parts.items():
            if len({x(row) for row in rows}) < 2:
                continue
            fixed = ", ".join(f"{short[a]} {v}" for a, v in zip(others, values, strict=True))
            points = tuple(_point(row, x(row), group(row)) for row in rows)
            found.append(Facet(label, fixed, tuple(rows), points))
        return found

    def _p_group(self, row: Row) -> str:
        return f"P = {row['batch.p']}" if "batch.p" in row else ""

    def _numeric(self, axis: str) -> bool:
        values = {row[axis] for row in self.done}
        return len(values) > 1 and all(
            isinstance(v, int | float) and not isinstance(v, bool) for v in values
        )


def read_view(folder: str | Path) -> SweepView:
    """Read `sweep.toml` and `results.csv` of a sweep's folder."""
    place = Path(folder)
    table = place / "results.csv"
    if not table.is_file():
        raise InputError("sweep", f"{place} (no results.csv in it)", "a sweep's folder")
    with table.open(encoding="utf-8", newline="") as file:
        rows = tuple({k: _read(k, v) for k, v in row.items()} for row in csv.DictReader(file))
    return SweepView(place, load_sweep(place / "sweep.toml"), rows)


def _point(row: Row, x: float, group: str) -> RunPoint:
    start = float(row["diameter_init"])
    bound = row.get("bound")
    return RunPoint(
        x,
        float(row["diameter"]),
        start,
        _LIMIT * start,
        bool(row["collapsed"]),
        None if bound is None else float(bound),
        group,
    )


def _read(key: str, text: str) -> Any:
    if text == "":
        return None
    if text in ("True", "False"):
        return text == "True"
    if key in ("run", "error"):
        return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


# The tables of a sweep: a row per run, those that failed, a row per point of the grid.

_HEAD = ("collapsed", "95 % interval", "diameter before", "after", "bound (17)")


def markdown_content(view: SweepView) -> dict[str, Any]:
    """Counts; then how many runs of each point collapsed, and medians over the seeds."""
    done, axes = view.done, view.sweep.axes
    positive = [row for row in done if row.get("bound") is not None and row["bound"] > 0]
    points: dict[tuple[Any, ...], list[Row]] = {}
    for row in done:
        points.setdefault(tuple(row[axis] for axis in axes), []).append(row)
    return {
        "runs": len(view.rows),
        "failed": sum(row["status"] == "failed" for row in view.rows),
        "done": len(done),
        "collapsed": sum(bool(row["collapsed"]) for row in done),
        "positive": len(positive),
        "held": sum(row["diameter"] >= row["bound"] for row in positive),
        "head": [*short_names(axes).values(), *_HEAD, *_recalls(view)],
        "below": ended_below(view),
        "rows": [[*point, *_cells(rows, _recalls(view))] for point, rows in points.items()],
    }


def run_table(view: SweepView) -> Table:
    """Every run: where it stands, how it ended, what was measured."""
    names, recalls = short_names(view.sweep.axes), _recalls(view)
    head = ["run", *names.values(), "seed", "status", "verdict", "before", "after"]
    rows: list[list[object]] = []
    for row in view.rows:
        sizes = [row.get(key) for key in ("diameter_init", "diameter", "bound")]
        rows.append(
            [
                row["run"],
                *(row[axis] for axis in view.sweep.axes),
                row["seed"],
                row["status"],
                verdict_cell(row.get("verdict")),
                *(Cell(number(size), size) for size in sizes),
                *(
                    Cell(percent(value), value)
                    for take in recalls.values()
                    for value in [take(row)]
                ),
            ]
        )
    return Table([*head, "bound (17)", *recalls], rows, first=20, sortable=True)


def ended_below(view: SweepView, most: int = 6) -> list[str]:
    """How many runs end below their network before training in R@1, and which."""
    lines = []
    for start, fine in (("recall_init", False), ("fine_recall_init", True)):
        known = [
            (row["run"], end, row[start])
            for row in view.done
            if row.get(start) is not None and (end := primary_recall(row, fine=fine)) is not None
        ]
        below = [f"{run} ({percent(b)} → {percent(a)})" for run, a, b in known if a < b]
        if below:
            kind = " by fine labels" * fine
            named = ", ".join([*below[:most], *["..."] * (len(below) > most)])
            lines.append(
                f"{len(below)} of {len(known)} runs end below their network before training in "
                f"{recall_name(view)}{kind}: {named}."
            )
    return lines


def failure_table(rows: Sequence[Row]) -> Table | None:
    """Runs that failed, and why; None if none did."""
    failed = [[row["run"], row["error"]] for row in rows if row["status"] == "failed"]
    return Table(["run", "why"], failed, first=20) if failed else None


def recall_name(view: SweepView) -> str:
    """What `primary_recall` is: the smallest k on the first evaluation split."""
    data = view.sweep.base.data
    split = next(iter(data.eval_splits), data.train_split)
    return f"R@{min(view.sweep.base.evaluate.ks)} on {split}"


def _recalls(view: SweepView) -> dict[str, Callable[[Row], float | None]]:
    """R@1 of a row by heading: before training, where the sweep has that, and at the end."""
    name = recall_name(view)
    end: dict[str, Callable[[Row], float | None]] = {name: primary_recall}
    if all(row.get("recall_init") is None for row in view.rows):
        return end
    return {f"{name}, before training": lambda row: row.get("recall_init"), **end}


def _cells(rows: Sequence[Row], recalls: Mapping[str, Callable[[Row], float | None]]) -> list[str]:
    rate = wilson_interval(sum(bool(row["collapsed"]) for row in rows) / len(rows), len(rows))
    return [
        _count(rate),
        f"{rate.low:.2f} to {rate.high:.2f}",
        *(
            _median([row.get(key) for row in rows])
            for key in ("diameter_init", "diameter", "bound")
        ),
        *(_median_percent([take(row) for row in rows]) for take in recalls.values()),
    ]


def _median_percent(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{100 * statistics.median(known):.1f} %" if known else "–"


def _median(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return number(float(statistics.median(known))) if known else "–"


_MOST = 8  # charts of one kind; a sweep over many axes has its table


def sweep_report(folder: str | Path) -> list[Path]:
    """Write `sweep.html`, `sweep.md` and `pictures/*.svg` from the table in a sweep's folder."""
    view = read_view(folder)
    charts = _charts(view)
    pictures = view.folder / "pictures"
    for old in pictures.glob("*.svg"):
        old.unlink()
    made = []
    for kind, drawn in charts.items():
        for i, chart in enumerate(drawn):
            name = kind if len(drawn) == 1 else f"{kind}-{i + 1}"
            made.append(save(chart, pictures / f"{name}.svg"))
    markdown = view.folder / "sweep.md"
    write_text(markdown, fill("sweep.md.j2", markdown_content(view)))
    page = Page("sweep.html.j2", sweep_content(view, charts))
    return [page.save(view.folder / "sweep.html"), markdown, *made]


def sweep_content(view: SweepView, charts: Mapping[str, Sequence[Chart]]) -> dict[str, Any]:
    """What the template shows; `charts` by kind: diameter, collapse, recall, shapes."""
    done, rows = view.done, view.rows
    fallen = sum(bool(row["collapsed"]) for row in done)
    bounded = [row for row in done if row.get("bound") is not None]
    figures: dict[str, object] = {
        "collapsed": f"{fallen} of {len(done)}",
        "failed": sum(row["status"] == "failed" for row in rows),
        "(17) held": f"{sum(r['diameter'] >= r['bound'] for r in bounded)} of {len(bounded)}",
        "(17) above 0": f"{sum(row['bound'] > 0 for row in bounded)} of {len(bounded)}",
    }
    best = max((row for row in done if not row["collapsed"]), key=_recall, default=None)
    known = best is not None and primary_recall(best) is not None
    if best is not None and known:
        figures[f"best {recall_name(view)}"] = percent(primary_recall(best))
    return {
        "title": f"Sweep {view.folder.name}",
        "lead": f"{view.sweep.base.data.name}, {len(rows)} runs",
        "headline": f"{fallen} of {len(done)} runs collapsed" if fallen else "No run collapsed",
        "tone": "good" if not fallen else "bad" if fallen == len(done) else "warn",
        "glyph": "✗" if fallen else "✓",
        "figures": figures,
        "recall": recall_name(view),
        "best": best["run"] if best is not None and known else "",
        "below": ended_below(view),
        "charts": charts,
        "runs": run_table(view),
        "failed": failure_table(rows),
        "config": config_content(view.sweep.base),
    }


def _charts(view: SweepView) -> dict[str, list[Chart]]:
    facets = view.facets()[:_MOST]
    recall = recall_name(view)
    return {
        "diameter": [
            diameter_chart(
                f"Diameter against {f.x_label}", f.points, x_label=f.x_label, note=f.fixed
            )
            for f in facets
        ],
        "collapse": [_rates(facet) for facet in facets],
        "recall": [
            recall_chart(f"{recall} and diameter, along {f.x_label}", pairs, note=f.fixed)
            for f in facets
            if (pairs := _with_recall(f))
        ],
        "shapes": [
            chart for facet in view.shapes()[:_MOST] for chart in _shape_maps(facet, recall)
        ],
    }


def _with_recall(facet: Facet) -> list[tuple[RunPoint, float]]:
    return [
        (point, recall)
        for point, row in zip(facet.points, facet.rows, strict=True)
        if (recall := primary_recall(row)) is not None
    ]


def _rates(facet: Facet) -> Chart:
    found: dict[float, list[bool]] = {}
    for point in facet.points:
        found.setdefault(point.x, []).append(point.collapsed)
    rates = {
        x: wilson_interval(sum(hits) / len(hits), len(hits)) for x, hits in sorted(found.items())
    }
    title = f"Share of runs that collapsed, by {facet.x_label}"
    return rate_chart(title, rates, x_label=facet.x_label, note=facet.fixed)


def _shape_maps(facet: Facet, recall: str) -> list[Chart]:
    ps = sorted({row["batch.p"] for row in facet.rows})
    ks = sorted({row["batch.k"] for row in facet.rows})
    found: dict[tuple[int, int], list[Row]] = {}
    for row in facet.rows:
        found.setdefault((row["batch.p"], row["batch.k"]), []).append(row)
    cells = [[found.get((p, k), []) for k in ks] for p in ps]
    crossed = [[_mostly(cell) for cell in line] for line in cells]
    small = ", ".join([*[facet.fixed] * bool(facet.fixed), "median over seeds; ✗ collapsed"])

    def drawn(title: str, value: Callable[[Row], float]) -> Chart:
        medians = [
            [_sweep_page_median([100 * value(row) for row in cell]) for cell in line]
            for line in cells
        ]
        return heatmap(
            title, ps, ks, medians, row_label="P", column_label="K", note=small, crossed=crossed
        )

    return [
        drawn("Diameter, in % of before", lambda row: row["diameter"] / row["diameter_init"]),
        drawn(f"{recall}, in %", _recall),
    ]


def _mostly(cell: Sequence[Row]) -> bool:
    return 2 * sum(bool(row["collapsed"]) for row in cell) > len(cell)


def _sweep_page_median(values: Sequence[float]) -> float:
    """To a tenth, and from 10 on to a whole number: there is room for four characters."""
    if not values:
        return float("nan")
    found = statistics.median(values)
    return round(found) if found >= 10 else round(found, 1)


def _recall(row: Row) -> float:
    found = primary_recall(row)
    return float("nan") if found is None else found
