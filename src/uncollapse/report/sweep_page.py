"""The report of a sweep: one page with every chart, a Markdown table, each chart as a file."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from uncollapse._base.check import InputError
from uncollapse._base.files import DamagedFileError, csv_rows, read_toml, write_text
from uncollapse._base.table import Cell, Table, number, percent
from uncollapse.charts import Axes, Chart, Entry, Scale, area, heatmap, save
from uncollapse.charts.marks import MARKERS, SERIES, Line, Mark, Points, Polyline, Rect
from uncollapse.health.verdict import Thresholds
from uncollapse.metrics.intervals import Interval, wilson_interval
from uncollapse.report.page import Page
from uncollapse.report.parts import share_cell, verdict_cell
from uncollapse.report.run_page import config_content, resolved
from uncollapse.sweep.results import primary_recall, short_names
from uncollapse.training.measures import NotMeasuredError, RunFolder, dotted

Row = Mapping[str, Any]
_BATCH = ("batch.p", "batch.k", "batch.size")
_MOST = 8  # charts of one kind; a sweep over many axes has its table


def sweep_report(folder: str | Path) -> list[Path]:
    """Write `sweep.html`, `sweep.md` and `pictures/*.svg` from the table in a sweep's folder."""
    view = read_view(folder)
    facets = view.facets()[:_MOST]
    charts = {
        "diameter": [diameter_chart(facet) for facet in facets],
        "collapse": [rate_chart(facet) for facet in facets],
        "shapes": [chart for facet in facets for chart in _shape_maps(facet, view.recall)],
    }
    pictures = view.folder / "pictures"
    for old in pictures.glob("*.svg"):
        old.unlink()
    made = []
    for kind, drawn in charts.items():
        for i, chart in enumerate(drawn):
            name = kind if len(drawn) == 1 else f"{kind}-{i + 1}"
            made.append(save(chart, pictures / f"{name}.svg"))
    markdown = view.folder / "sweep.md"
    write_text(markdown, sweep_markdown(view))
    page = Page("sweep.html.j2", sweep_content(view) | {"charts": charts})
    return [page.save(view.folder / "sweep.html"), markdown, *made]


# The table of a sweep as it is drawn: rows read back, and split into what one chart compares.


@dataclass(frozen=True, eq=False)
class ChartedRun:
    """A run in a chart: where it stands, and its row; `group` tells runs at the same x apart."""

    x: float
    row: Row
    group: str = ""


@dataclass(frozen=True)
class Facet:
    """Runs that differ only along x (and in their seeds); `fixed` says what they share."""

    label: str
    fixed: str
    points: Sequence[ChartedRun]

    @property
    def places(self) -> list[float]:
        """The values of x."""
        return sorted({point.x for point in self.points})

    def means(self, key: str) -> dict[float, float]:
        """The mean of a column at each x, where it is known."""
        rows = {x: [p.row.get(key) for p in self.points if p.x == x] for x in self.places}
        known = {x: [v for v in values if v is not None] for x, values in rows.items()}
        return {x: statistics.fmean(values) for x, values in known.items() if values}


@dataclass(frozen=True)
class SweepView:
    """A sweep with the rows of its table; numbers are numbers again, what is missing is None.

    `config` is the one that its runs vary, by dotted keys, `axes` the keys that vary, or that a
    search varied (`searched`). `defaults` are those of the config, where its runs know them.
    """

    folder: Path
    config: Mapping[str, Any]
    defaults: Mapping[str, Any]
    axes: Sequence[str]
    searched: bool
    rows: Sequence[Row]

    @property
    def done(self) -> list[Row]:
        """Runs with an outcome to draw."""
        return [row for row in self.rows if row.get("diameter") is not None]

    @property
    def recall(self) -> str:
        """What `primary_recall` is: the smallest k on the first evaluation split."""
        split = next(iter(self.config["data.eval_splits"]), self.config["data.train_split"])
        return f"R@{min(self.config['evaluate.ks'])} on {split}"

    def facets(self) -> list[Facet]:
        """One for each axis of numbers and each setting of the others; P and K are one axis."""
        facets: list[Facet] = []
        if any(axis in _BATCH for axis in self.axes):
            facets += self._split(_BATCH, "batch size", self._batch_size)
        for axis in self.axes:
            kinds = {type(row[axis]) for row in self.done}
            if axis not in _BATCH and kinds <= {int, float}:
                label = "dimension" if axis == "model.dim" else axis.rpartition(".")[2]
                facets += self._split((axis,), label, itemgetter(axis))
        return facets

    def _batch_size(self, row: Row) -> float:
        """P x K, or the size of a uniform batch."""
        batch = {**self.config, **row}
        if batch["batch.sampler"] == "uniform":
            return float(batch["batch.size"])
        return float(batch["batch.p"]) * float(batch["batch.k"])

    def _split(self, along: Sequence[str], label: str, x: Callable[[Row], float]) -> list[Facet]:
        # The trials of a search share no settings: all are drawn together.
        others = [axis for axis in self.axes if axis not in along and not self.searched]
        short = short_names(self.axes)
        facets: dict[str, list[ChartedRun]] = {}
        for row in self.done:
            group = f"P = {row['batch.p']}" if along == _BATCH and "batch.p" in row else ""
            fixed = ", ".join(f"{short[axis]} {row[axis]}" for axis in others)
            facets.setdefault(fixed, []).append(ChartedRun(float(x(row)), row, group))
        return [
            Facet(label, fixed, points)
            for fixed, points in facets.items()
            if len({point.x for point in points}) > 1
        ]


def read_view(folder: str | Path) -> SweepView:
    """Read `sweep.toml` and `results.csv` of a sweep's folder."""
    folder = Path(folder)
    table = folder / "results.csv"
    if not table.is_file():
        raise InputError("sweep", f"{folder} (no results.csv in it)", "a sweep's folder")
    header, *lines = csv_rows(table)
    rows = [
        {key: _read(key, text) for key, text in zip(header, line, strict=True)} for line in lines
    ]
    sweep = read_toml(folder / "sweep.toml")
    searched, base = "search" in sweep, dotted(sweep["base"])
    grids = [sweep["search"]] if searched else sweep["grid"]
    axes = dict.fromkeys(key for grid in grids for key in grid if key != "trials")
    defaults = _defaults(folder, base["loss.name"])
    return SweepView(folder, resolved(base, defaults), defaults, list(axes), searched, rows)


def _defaults(folder: Path, loss: str) -> Mapping[str, Any]:
    """The defaults that a run with this loss has among its measures; none where no run has any."""
    for file in sorted(folder.glob("runs/*/config.toml")):
        run = RunFolder(file.parent)
        with suppress(DamagedFileError, NotMeasuredError):
            if run.values["loss.name"] == loss:
                return run.measures().defaults
    return {}


def _read(key: str, text: str) -> Any:
    if text == "":
        return None
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float) if key not in ("run", "error") else ():
        try:
            return kind(text)
        except ValueError:
            continue
    return text


# Charts of many runs, as in HNM Figs 5-12: diameters, collapse rates, maps over P and K.

_ZOOM = 1.25
_LEAST = 1e-12  # a diameter of 0 on a logarithmic scale
_DASHED, _DOTTED = (7, 4), (2, 4)
_KINDS = [kind for kind in MARKERS if kind not in ("cross", "star")]  # a cross is a collapsed run


def diameter_chart(facet: Facet) -> Chart:
    """The diameter after training against x, one point per run; crosses are runs that collapsed.

    Dashed: the bound (17), the mean at each x, where it is above 0. Dotted: the diameter before
    training. Shaded: where a run counts as collapsed.
    """
    starts, bounds = facet.means("diameter_init"), facet.means("bound")
    limits = {x: Thresholds().collapse_ratio * start for x, start in starts.items()}
    above = {x: bound for x, bound in bounds.items() if bound > 0}
    sizes = [max(point.row["diameter"], _LEAST) for point in facet.points]
    values = [*sizes, *(point.row["diameter_init"] for point in facet.points)]
    wide = min(values) < 0.02 * max(values)
    values += [*above.values(), *(limits.values() if wide else ())]
    across, up = area()
    axes = Axes(_x_scale(starts, across), Scale.around(values, *up, log=wide, zero=not wide))
    marks: list[Mark] = [
        *axes.frame(facet.label, x_ticks={x: number(x) for x in starts}),
        _region(axes, limits),
        axes.line(list(starts), list(starts.values()), "soft", dash=_DOTTED),
        axes.line(list(above), list(above.values()), "s0", dash=_DASHED),
        Points(axes.places(list(above), list(above.values())), "bar", "s0"),
        *_markers(axes, facet.points),
    ]
    words = [f"{sum(p.row['collapsed'] for p in facet.points)} of {len(sizes)} runs collapsed"]
    if len(above) < len(bounds):
        empty = f"{len(bounds) - len(above)} of {len(bounds)} {facet.label}s"
        words.append(f"(17) says nothing (is at most 0) at {empty}")
    means = facet.means("diameter").items()
    each = [f"{facet.label} {number(x)}: diameter {number(size)}" for x, size in means]
    looks = {name: look for name, look in _looks(facet.points).items() if name}
    legend = [
        *(Entry(name, (Points(((15, 7),), *look, _ZOOM),)) for name, look in looks.items()),
        *[Entry("bound (17), c = 2", (Line((1, 7), (29, 7), "s0", 2.0, _DASHED),))] * bool(above),
        Entry("before training", (Line((1, 7), (29, 7), "soft", 2.0, _DOTTED),)),
        Entry("collapsed region", (Rect(0, 0, 30, 14, "bad", 0.13),)),
    ]
    return Chart(
        f"Diameter against {facet.label}",
        ". ".join([*words, *each]),
        marks,
        note="; ".join(filter(None, [facet.fixed, *words, "logarithmic scale" * wide])),
        legend=legend,
    )


def rate_chart(facet: Facet) -> Chart:
    """The share of runs that collapsed at each x, with its interval."""
    across, up = area()
    rates = {x: _rate([p.row for p in facet.points if p.x == x]) for x in facet.places}
    axes = Axes(_x_scale(rates, across), Scale(0.0, 1.0, *up))
    ticks = {x: number(x) for x in rates}
    marks: list[Mark] = [*axes.frame(facet.label, x_ticks=ticks, share=True)]
    tips = []
    for x, (count, rate) in rates.items():
        tips.append(f"{number(x)}: {count}")
        marks.append(axes.error_bar(x, rate.low, rate.high, "s1"))
        marks.append(Points((axes.at(x, rate.value),), "diamond", "s1", _ZOOM, tips=tips[-1:]))
    return Chart(
        f"Share of runs that collapsed, by {facet.label}",
        f"Share of runs that collapsed by {facet.label}. {', '.join(tips)}",
        marks,
        note=", ".join(filter(None, [facet.fixed, "95 % intervals (Wilson)"])),
    )


def _rate(rows: Sequence[Row]) -> tuple[str, Interval]:
    """How many of the runs collapsed, and the share with its interval."""
    count = sum(row["collapsed"] for row in rows)
    return f"{count} of {len(rows)}", wilson_interval(count / len(rows), len(rows))


def _shape_maps(facet: Facet, recall: str) -> list[Chart]:
    """The diameter left and R@1 for each P and K, where both vary."""
    cells: dict[tuple[int, int], list[Row]] = {}
    for row in (point.row for point in facet.points if point.group and "batch.k" in point.row):
        cells.setdefault((row["batch.p"], row["batch.k"]), []).append(row)
    ps, ks = sorted({p for p, _ in cells}), sorted({k for _, k in cells})
    if len(ks) < 2:
        return []
    grid = [[cells.get((p, k), []) for k in ks] for p in ps]
    fallen = [[2 * sum(row["collapsed"] for row in c) > len(c) for c in line] for line in grid]
    note = ", ".join(filter(None, [facet.fixed, "median over seeds; ✗ collapsed"]))
    values: dict[str, Callable[[Row], float | None]] = {
        "Diameter, in % of before": lambda row: row["diameter"] / row["diameter_init"],
        f"{recall}, in %": primary_recall,
    }
    charts = []
    for title, value in values.items():
        medians = [[_rounded(_median(map(value, cell))) for cell in line] for line in grid]
        labels = {"row_label": "P", "column_label": "K", "note": note}
        charts.append(heatmap(title, ps, ks, medians, crossed=fallen, **labels))
    return charts


def _rounded(share: float | None) -> float:
    """In per cent to a tenth, from 10 on to a whole number: there is room for four characters."""
    if share is None:
        return float("nan")
    return round(100 * share) if share >= 0.1 else round(100 * share, 1)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(statistics.median(known)) if known else None


def _x_scale(values: Iterable[float], across: tuple[float, float]) -> Scale:
    """Batch sizes and dimensions double: logarithmic where they span enough."""
    low, *_, high = sorted(values)
    if low > 0 and high >= 4 * low:
        return Scale(low / 1.25, high * 1.25, *across, log=True)
    pad = 0.08 * (high - low)
    return Scale(low - pad, high + pad, *across)


def _markers(axes: Axes, points: Sequence[ChartedRun]) -> list[Points]:
    """A marker for each run at its diameter."""
    looks, marks = _looks(points), []
    for point in points:
        size, collapsed = point.row["diameter"], point.row["collapsed"]
        group = f"{point.group}: " * bool(point.group)
        tip = f"{group}diameter {number(size)}" + ", collapsed" * collapsed
        at = (axes.at(point.x, max(size, _LEAST)),)
        look = looks["collapsed" if collapsed else point.group]
        marks.append(Points(at, *look, _ZOOM, tips=(tip,)))
    return marks


def _looks(points: Sequence[ChartedRun]) -> dict[str, tuple[str, str]]:
    """Marker and colour of each group; a red cross for runs that collapsed, if there are any."""
    groups = dict.fromkeys(point.group for point in points)
    looks = {name: (_KINDS[i % len(_KINDS)], f"s{i % SERIES}") for i, name in enumerate(groups)}
    crossed = any(point.row["collapsed"] for point in points)
    return looks | ({"collapsed": ("cross", "bad")} if crossed else {})


def _region(axes: Axes, limits: Mapping[float, float]) -> Polyline:
    """All below the limit, over the whole width."""
    low = axes.y.low if axes.y.log else 0.0
    tops = [axes.at(x, max(value, low)) for x, value in limits.items()]
    left, right, floor = axes.x.start, axes.x.end, axes.y.start
    outline = ((left, floor), (left, tops[0][1]), *tops, (right, tops[-1][1]), (right, floor))
    return Polyline(outline, "none", 0, closed=True, fill="bad", fill_opacity=0.13)


# What the page and the Markdown say.


def sweep_content(view: SweepView) -> dict[str, Any]:
    """What the template shows beside the charts."""
    done, rows = view.done, view.rows
    fallen = sum(row["collapsed"] for row in done)
    bounded = [row for row in done if row.get("bound") is not None]
    figures: dict[str, object] = {
        "collapsed": f"{fallen} of {len(done)}",
        "failed": sum(row["status"] == "failed" for row in rows),
        "(17) held": f"{sum(r['diameter'] >= r['bound'] for r in bounded)} of {len(bounded)}",
        "(17) above 0": f"{sum(row['bound'] > 0 for row in bounded)} of {len(bounded)}",
    }
    standing = {row["run"]: primary_recall(row) for row in done if not row["collapsed"]}
    known = {run: recall for run, recall in standing.items() if recall is not None}
    best = max(known, key=lambda run: known[run], default="")
    if best:
        figures[f"best {view.recall}"] = percent(known[best])
    failed = [[row["run"], row["error"]] for row in rows if row["status"] == "failed"]
    return {
        "title": f"Sweep {view.folder.name}",
        "lead": f"{view.config['data.name']}, {len(rows)} runs",
        "headline": f"{fallen} of {len(done)} runs collapsed" if fallen else "No run collapsed",
        "tone": "good" if not fallen else "bad" if fallen == len(done) else "warn",
        "glyph": "✗" if fallen else "✓",
        "figures": figures,
        "recall": view.recall,
        "best": best,
        "below": ended_below(view),
        "runs": run_table(view),
        "failed": Table(["run", "why"], failed, first=20) if failed else None,
        "config": config_content(view.config, view.defaults),
    }


def run_table(view: SweepView) -> Table:
    """Every run: where it stands, how it ended, what was measured."""
    axes, recalls = view.axes, _recalls(view)
    head = ["run", *short_names(axes).values(), "seed", "status", "verdict", "before", "after"]
    rows = [
        [
            *(row[key] for key in ("run", *axes, "seed", "status")),
            verdict_cell(row.get("verdict")),
            *(Cell(number(row.get(key)), row.get(key)) for key in _SIZES),
            *(share_cell(recall(row)) for recall in recalls.values()),
        ]
        for row in view.rows
    ]
    return Table([*head, "bound (17)", *recalls], rows, first=20, sortable=True)


def sweep_markdown(view: SweepView) -> str:
    """Counts; then how many runs of each point collapsed, and medians over the seeds."""
    done, axes, recalls = view.done, view.axes, _recalls(view)
    positive = [row for row in done if row.get("bound") is not None and row["bound"] > 0]
    failed = sum(row["status"] == "failed" for row in view.rows)
    held = sum(row["diameter"] >= row["bound"] for row in positive)
    counts = (
        f"{len(view.rows)} runs, {failed} failed; {sum(row['collapsed'] for row in done)} of "
        f"{len(done)} collapsed. The bound (17) with c = 2 is above 0 for {len(positive)} runs, "
        f"of which {held} ended above it."
    )
    points: dict[tuple[Any, ...], list[Row]] = {}
    for row in done:
        points.setdefault(tuple(row[axis] for axis in axes), []).append(row)
    head = ["collapsed", "95 % interval", "diameter before", "after", "bound (17)", *recalls]
    table = Table([*short_names(axes).values(), *head])
    for point, rows in points.items():
        count, rate = _rate(rows)
        sizes = (_median(row.get(key) for row in rows) for key in _SIZES)
        shares = (_median(map(recall, rows)) for recall in recalls.values())
        table.add(
            *point,
            count,
            f"{rate.low:.2f} to {rate.high:.2f}",
            *map(number, sizes),
            *map(percent, shares),
        )
    return f"{' '.join([counts, *ended_below(view)])}\n\n{table.markdown()}\n"


_SIZES = ("diameter_init", "diameter", "bound")


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
                f"{view.recall}{kind}: {named}."
            )
    return lines


def _recalls(view: SweepView) -> dict[str, Callable[[Row], float | None]]:
    """R@1 of a row by heading: before training, where the sweep has that, and at the end."""
    end: dict[str, Callable[[Row], float | None]] = {view.recall: primary_recall}
    if all(row.get("recall_init") is None for row in view.rows):
        return end
    return {f"{view.recall}, before training": lambda row: row.get("recall_init"), **end}
