"""The report of a sweep: one page with every picture, and each picture as a file."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from uncollapse._base.files import write_text
from uncollapse.report.blocks import Cell, figures, grid, note, table
from uncollapse.report.charts import heatmap
from uncollapse.report.config_table import config_table
from uncollapse.report.markup import Html, number, percent
from uncollapse.report.page import Page
from uncollapse.report.sweep_charts import diameter_chart, rate_chart, recall_chart
from uncollapse.report.sweep_markdown import sweep_markdown
from uncollapse.report.sweep_points import RunPoint
from uncollapse.report.sweep_svg import standalone_svg
from uncollapse.report.sweep_view import Facet, Row, SweepView, read_view
from uncollapse.report.words import badge
from uncollapse.sweep.axes import short_names
from uncollapse.sweep.rates import wilson
from uncollapse.sweep.results import primary_recall

__all__ = ["sweep_report"]

_MOST = 8  # charts of one kind; a sweep over many axes has its table
_RULE = (
    "A run counts as collapsed if the monitor's last verdict is network-collapse, or if the "
    "diameter of the evaluation samples fell below 1 % of what it was before training. The bound "
    "is HNM (17) with c = 2: the diameter before training minus twice the loss of the hardest "
    "triplet in batches of the run's shape. It is a forecast, not a guarantee."
)


def sweep_report(folder: str | Path) -> list[Path]:
    """Write `sweep.html`, `sweep.md` and `pictures/*.svg` from the table in a sweep's folder."""
    view = read_view(folder)
    charts = _charts(view)
    pictures = view.folder / "pictures"
    pictures.mkdir(exist_ok=True)
    for old in pictures.glob("*.svg"):
        old.unlink()
    made = []
    for kind, drawn in charts.items():
        for i, chart in enumerate(drawn):
            name = kind if len(drawn) == 1 else f"{kind}-{i + 1}"
            made.append(pictures / f"{name}.svg")
            write_text(made[-1], standalone_svg(chart))
    write_text(view.folder / "sweep.md", sweep_markdown(view))
    page = _page(view, charts).save(view.folder / "sweep.html")
    return [page, view.folder / "sweep.md", *made]


def _page(view: SweepView, charts: dict[str, list[Html]]) -> Page:
    done, rows = view.done, view.rows
    fallen = sum(bool(row["collapsed"]) for row in done)
    held = [row for row in done if row.get("bound") is not None]
    page = Page(f"Sweep {view.folder.name}", f"{view.sweep.base.data.name}, {len(rows)} runs")
    tone = "good" if not fallen else "bad" if fallen == len(done) else "warn"
    numbers: dict[str, object] = {
        "collapsed": f"{fallen} of {len(done)}",
        "failed": sum(row["status"] == "failed" for row in rows),
        "(17) held": f"{sum(r['diameter'] >= r['bound'] for r in held)} of {len(held)}",
        "(17) above 0": f"{sum(row['bound'] > 0 for row in held)} of {len(held)}",
    }
    best = max((row for row in done if not row["collapsed"]), key=_recall, default=None)
    said = _RULE
    if best is not None and primary_recall(best) is not None:
        numbers["best R@1"] = percent(primary_recall(best))
        said = f"Best R@1 of those that did not collapse: {best['run']}. {_RULE}"
    body = Html(figures(numbers) + note(said))
    title = f"{fallen} of {len(done)} runs collapsed" if fallen else "No run collapsed"
    page.add(title, body, anchor="verdict", tone=tone, glyph="✗" if fallen else "✓")
    page.add("Diameter after training", grid(charts["diameter"], wide=True), anchor="diameter")
    page.add("How often runs collapse", grid(charts["collapse"], wide=True), anchor="collapse")
    page.add("R@1 beside the diameter", grid(charts["recall"], wide=True), anchor="recall")
    page.add("P by K", grid(charts["shapes"], wide=True), anchor="shapes")
    page.add("Runs", _run_table(view), anchor="runs")
    page.add("Failed runs", _failures(rows), anchor="failed")
    page.add("Base config", config_table(view.sweep.base), anchor="config")
    return page


def _charts(view: SweepView) -> dict[str, list[Html]]:
    facets = view.facets()[:_MOST]
    shapes = view.shapes()[:_MOST]
    recalls = [(facet, _with_recall(facet)) for facet in facets]
    return {
        "diameter": [
            diameter_chart(
                f"Diameter against {f.x_label}", f.points, x_label=f.x_label, small=f.fixed
            )
            for f in facets
        ],
        "collapse": [_rates(facet) for facet in facets],
        "recall": [
            recall_chart(f"R@1 and diameter, along {f.x_label}", pairs, small=f.fixed)
            for f, pairs in recalls
            if pairs
        ],
        "shapes": [chart for facet in shapes for chart in _shape_maps(facet)],
    }


def _with_recall(facet: Facet) -> list[tuple[RunPoint, float]]:
    return [
        (point, recall)
        for point, row in zip(facet.points, facet.rows, strict=True)
        if (recall := primary_recall(row)) is not None
    ]


def _rates(facet: Facet) -> Html:
    found: dict[float, list[bool]] = {}
    for point in facet.points:
        found.setdefault(point.x, []).append(point.collapsed)
    rates = {x: wilson(sum(hits), len(hits)) for x, hits in sorted(found.items())}
    title = f"Share of runs that collapsed, by {facet.x_label}"
    return rate_chart(title, rates, x_label=facet.x_label, small=facet.fixed)


def _shape_maps(facet: Facet) -> list[Html]:
    ps = sorted({row["batch.p"] for row in facet.rows})
    ks = sorted({row["batch.k"] for row in facet.rows})
    found: dict[tuple[int, int], list[Row]] = {}
    for row in facet.rows:
        found.setdefault((row["batch.p"], row["batch.k"]), []).append(row)
    cells = [[found.get((p, k), []) for k in ks] for p in ps]
    crossed = [[_mostly(cell) for cell in line] for line in cells]

    def drawn(title: str, values: list[list[float]]) -> Html:
        small = ", ".join([*[facet.fixed] * bool(facet.fixed), "median over seeds; ✗ collapsed"])
        return heatmap(
            title, ps, ks, values, row_label="P", column_label="K", small=small, crossed=crossed
        )

    def medians(value: Callable[[Row], float]) -> list[list[float]]:
        return [[_median([100 * value(row) for row in cell]) for cell in line] for line in cells]

    return [
        drawn(
            "Diameter, in % of before", medians(lambda row: row["diameter"] / row["diameter_init"])
        ),
        drawn("R@1 in %", medians(_recall)),
    ]


def _run_table(view: SweepView) -> Html:
    names = short_names(view.sweep.axes)
    head = [*names.values(), "seed", "status", "verdict", "before", "after", "bound (17)", "R@1"]
    lines: list[list[object]] = []
    for row in view.rows:
        recall = primary_recall(row)
        sizes = [row.get(key) for key in ("diameter_init", "diameter", "bound")]
        lines.append(
            [
                row["run"],
                *(row[axis] for axis in view.sweep.axes),
                row["seed"],
                row["status"],
                badge(row.get("verdict")),
                *(Cell(number(size), size) for size in sizes),
                Cell(percent(recall), recall),
            ]
        )
    return table(["run", *head], lines, first=20, sortable=True)


def _failures(rows: Sequence[Row]) -> Html:
    failed = [[row["run"], row["error"]] for row in rows if row["status"] == "failed"]
    return table(["run", "why"], failed, first=20) if failed else Html("")


def _mostly(cell: Sequence[Row]) -> bool:
    return 2 * sum(bool(row["collapsed"]) for row in cell) > len(cell)


def _median(values: Sequence[float]) -> float:
    """To a tenth, and from 10 on to a whole number: there is room for four signs."""
    if not values:
        return float("nan")
    found = statistics.median(values)
    return round(found) if found >= 10 else round(found, 1)


def _recall(row: Row) -> float:
    found = primary_recall(row)
    return float("nan") if found is None else found
