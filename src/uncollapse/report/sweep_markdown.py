"""The table of a sweep in Markdown: one line a point of the grid, over its seeds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from uncollapse.report.markup import number
from uncollapse.report.sweep_view import Row, SweepView
from uncollapse.sweep.axes import short_names
from uncollapse.sweep.rates import wilson
from uncollapse.sweep.results import primary_recall

__all__ = ["sweep_markdown"]


def sweep_markdown(view: SweepView) -> str:
    """Counts, then a table: how many runs of each point collapsed, and medians over the seeds."""
    done = view.done
    bounds = [row for row in done if row.get("bound") is not None]
    said = [row for row in bounds if row["bound"] > 0]
    fallen = sum(bool(row["collapsed"]) for row in done)
    failed = sum(row["status"] == "failed" for row in view.rows)
    lines = [
        f"{len(view.rows)} runs, {failed} failed; {fallen} of {len(done)} collapsed. "
        f"The bound (17) with c = 2 is above 0 for {len(said)} runs, of which "
        f"{sum(row['diameter'] >= row['bound'] for row in said)} ended above it.",
        "",
        _line([*short_names(view.sweep.axes).values(), *_HEAD]),
        _line(["---:"] * (len(view.sweep.axes) + len(_HEAD))),
    ]
    points: dict[tuple[Any, ...], list[Row]] = {}
    for row in done:
        points.setdefault(tuple(row[axis] for axis in view.sweep.axes), []).append(row)
    lines += [_line([*map(str, point), *_cells(rows)]) for point, rows in points.items()]
    return "\n".join(lines) + "\n"


_HEAD = ("collapsed", "95 % interval", "diameter before", "after", "bound (17)", "R@1")


def _cells(rows: Sequence[Row]) -> list[str]:
    rate = wilson(sum(bool(row["collapsed"]) for row in rows), len(rows))
    recalls = [recall for row in rows if (recall := primary_recall(row)) is not None]
    return [
        f"{rate.count} of {rate.total}",
        f"{rate.low:.2f} to {rate.high:.2f}",
        *(
            _median([row.get(key) for row in rows])
            for key in ("diameter_init", "diameter", "bound")
        ),
        f"{100 * statistics.median(recalls):.1f} %" if recalls else "–",
    ]


def _median(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return number(float(statistics.median(known))) if known else "–"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
