"""The report of a sweep: one page with every chart, a Markdown table, each chart as a file."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from uncollapse._base.files import write_text
from uncollapse.charts import Chart, heatmap, save
from uncollapse.charts.numbers import percent
from uncollapse.report.config_tables import config_content
from uncollapse.report.page import Page, fill
from uncollapse.report.sweep_charts import diameter_chart, rate_chart, recall_chart
from uncollapse.report.sweep_points import RunPoint
from uncollapse.report.sweep_tables import (
    ended_below,
    failure_table,
    markdown_content,
    recall_name,
    run_table,
)
from uncollapse.report.sweep_view import Facet, Row, SweepView, read_view
from uncollapse.sweep.rates import wilson
from uncollapse.sweep.results import primary_recall

__all__ = ["sweep_content", "sweep_report"]

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
    rates = {x: wilson(sum(hits), len(hits)) for x, hits in sorted(found.items())}
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
        medians = [[_median([100 * value(row) for row in cell]) for cell in line] for line in cells]
        return heatmap(
            title, ps, ks, medians, row_label="P", column_label="K", note=small, crossed=crossed
        )

    return [
        drawn("Diameter, in % of before", lambda row: row["diameter"] / row["diameter_init"]),
        drawn(f"{recall}, in %", _recall),
    ]


def _mostly(cell: Sequence[Row]) -> bool:
    return 2 * sum(bool(row["collapsed"]) for row in cell) > len(cell)


def _median(values: Sequence[float]) -> float:
    """To a tenth, and from 10 on to a whole number: there is room for four characters."""
    if not values:
        return float("nan")
    found = statistics.median(values)
    return round(found) if found >= 10 else round(found, 1)


def _recall(row: Row) -> float:
    found = primary_recall(row)
    return float("nan") if found is None else found
