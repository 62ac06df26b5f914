"""The tables of a sweep: a row per run, those that failed, a row per point of the grid."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from uncollapse.charts.numbers import number, percent
from uncollapse.report.sweep_view import Row, SweepView
from uncollapse.report.tables import Cell, Table
from uncollapse.report.verdict_texts import verdict_cell
from uncollapse.sweep.grid_axes import short_names
from uncollapse.sweep.rates import wilson
from uncollapse.sweep.results import primary_recall

__all__ = ["ended_below", "failure_table", "markdown_content", "recall_name", "run_table"]

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
        "head": [*short_names(axes).values(), *_HEAD, f"{recall_name(view)}, before", "after"],
        "below": ended_below(view),
        "rows": [[*point, *_cells(rows)] for point, rows in points.items()],
    }


def run_table(view: SweepView) -> Table:
    """Every run: where it stands, how it ended, what was measured."""
    names, recall = short_names(view.sweep.axes), recall_name(view)
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
                *(Cell(percent(r), r) for r in (row.get("recall_init"), primary_recall(row))),
            ]
        )
    head += ["bound (17)", f"{recall}, before", "after"]
    return Table(head, rows, first=20, sortable=True)


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


def _cells(rows: Sequence[Row]) -> list[str]:
    rate = wilson(sum(bool(row["collapsed"]) for row in rows), len(rows))
    recalls = [[row.get("recall_init") for row in rows], [primary_recall(row) for row in rows]]
    return [
        f"{rate.count} of {rate.total}",
        f"{rate.low:.2f} to {rate.high:.2f}",
        *(
            _median([row.get(key) for row in rows])
            for key in ("diameter_init", "diameter", "bound")
        ),
        *(_median_percent(values) for values in recalls),
    ]


def _median_percent(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{100 * statistics.median(known):.1f} %" if known else "–"


def _median(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return number(float(statistics.median(known))) if known else "–"
