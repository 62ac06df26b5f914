"""Runs with memories as a table, a file of all runs, and a picture."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from _memory_runs import FIXED, RATES, SIZES, SMALL, STRATEGIES, MemorySetting
from _study_data import TITLES
from uncollapse.charts import Chart, Entry, Series, curves, panels, save
from uncollapse.charts.marks import line_look

__all__ = ["MemoryRun", "drifts_by_size", "picture", "summary", "write_csv"]

LOST = ("network-collapse", "shrinking")
_FIGURES: dict[str, Callable[[dict[str, Any]], float]] = {
    "drift before training": lambda r: r["drift"],
    "share of the scale at the end": lambda r: r["scale"],
    "R@1 of unseen classes": lambda r: r["recall"],
}
_LEAST = 1e-4  # of the scale, on a logarithmic axis


class MemoryRun(NamedTuple):
    """A setting and what became of it."""

    setting: MemorySetting
    result: dict[str, Any]

    @property
    def collapsed(self) -> bool:
        """By the monitor's last verdict."""
        return self.result["verdict"] in LOST


def drifts_by_size(drifts: Sequence[MemoryRun]) -> str:
    """Drift before training over the size of the memory, the mean of the seeds and their range."""
    sizes = [f"{size:,} rows" if size else "no memory" for size in SIZES]
    lines = [
        "| " + " | ".join(["data", "strategy", *sizes]) + " |",
        "|---" * (len(SIZES) + 2) + "|",
    ]
    for data in RATES:
        for strategy in STRATEGIES:
            cells = []
            for size in SIZES:
                found = [one.result["drift"] for one in _at(drifts, data, strategy, size)]
                spread = f" ± {(max(found) - min(found)) / 2:.3f}" if len(found) > 1 else ""
                cells.append(f"{round(mean(found), 3) + 0.0:+.3f}{spread}" if found else "–")
            lines.append(f"| {TITLES[data]} | {strategy} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def summary(runs: Sequence[MemoryRun]) -> str:
    """The tables, as Markdown: kept embeddings that move with the batch, and fixed ones."""
    moving = _moving(runs)
    small = [one for one in runs if one.setting.p == SMALL[0]]
    fixed = [one for one in runs if one.setting.references == "fixed"]
    head = ["data", "strategy", "rows", "seeds", "drift before", "scale kept", "R@1", "verdicts"]
    lines = ["| " + " | ".join([*head, "staleness"]) + " |", "|---" * (len(head) + 1) + "|"]
    lines += _lines(moving, STRATEGIES, SIZES)
    found = [*lines, "", *_forecasts(moving)]
    if small:
        found += ["", f"With P {SMALL[0]}, K {SMALL[1]}:", "", *lines[:2]]
        found += _lines(small, STRATEGIES, SIZES)
    if fixed:
        sizes = sorted({one.setting.memory for one in fixed})
        found += ["", 'With `references="fixed"`, as in PML:', "", *lines[:2]]
        found += _lines(fixed, FIXED, sizes)
    return "\n".join(found)


def _moving(runs: Sequence[MemoryRun]) -> list[MemoryRun]:
    """The runs of the law: of the usual batch, kept embeddings moving with it."""
    usual = [one for one in runs if one.setting.p != SMALL[0]]
    return [one for one in usual if one.setting.references == "moving"]


def _lines(
    runs: Sequence[MemoryRun], strategies: Sequence[str] | dict[str, Any], sizes: Sequence[int]
) -> list[str]:
    found = []
    for data in RATES:
        for strategy in strategies:
            for size in sizes:
                some = _at(runs, data, strategy, size)
                if some:
                    found.append(f"| {TITLES[data]} | {strategy} | {size} | {_cells(some)} |")
    return found


def _at(runs: Sequence[MemoryRun], data: str, strategy: str, size: int) -> list[MemoryRun]:
    return [
        one
        for one in runs
        if (one.setting.data, one.setting.strategy, one.setting.memory) == (data, strategy, size)
    ]


def _cells(runs: Sequence[MemoryRun]) -> str:
    drift, scale, recall = (
        mean(figure(one.result) for one in runs) for figure in _FIGURES.values()
    )
    before = mean(one.result["recall_before"] for one in runs)
    verdicts = ", ".join(dict.fromkeys(one.result["verdict"] for one in runs))
    ages = [one.result["staleness"] for one in runs if one.result["staleness"] is not None]
    stale = f"{mean(ages):.2g}" if ages else "–"
    shown = f"{scale:.4f}" if scale < 1 else f"{scale:.3g}"
    rates = f"{before:.1%} → {recall:.1%}"
    return f"{len(runs)} | {round(drift, 3) + 0.0:+.3f} | {shown} | {rates} | {verdicts} | {stale}"


def _forecasts(runs: Sequence[MemoryRun]) -> list[str]:
    """How well the sign of the drift before training told collapse from none."""
    from uncollapse.health.drifts import NO_DRIFT

    counts = {(alarm, fell): 0 for alarm in (True, False) for fell in (True, False)}
    for one in runs:
        counts[one.result["drift"] > NO_DRIFT, one.collapsed] += 1
    lowest = min((one.result["drift"] for one in runs if one.collapsed), default=math.nan)
    highest = max((one.result["drift"] for one in runs if not one.collapsed), default=math.nan)
    return [
        f"Of {len(runs)} runs, {sum(one.collapsed for one in runs)} collapsed. A drift above "
        f"{NO_DRIFT:g} before training was right about {counts[True, True]} of them and wrong "
        f"about {counts[True, False]} that did not collapse; below it {counts[False, True]} "
        f"collapsed and {counts[False, False]} did not. Lowest drift of a run that collapsed "
        f"{lowest:+.3f}, highest of one that did not {highest:+.3f}."
    ]


def write_csv(runs: Sequence[MemoryRun], path: Path) -> None:
    """All runs, a line each."""
    rows = []
    for setting, result in runs:
        shown = {k: f"{v:.5g}" if isinstance(v, float) else v for k, v in result.items()}
        rows.append(asdict(setting) | shown)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def picture(runs: Sequence[MemoryRun], drifts: Sequence[MemoryRun], path: Path) -> None:
    """Drift, scale and R@1 over the size of the memory, a row of panels for each dataset."""
    moving = _moving(runs)
    names = [data for data in RATES if any(one.setting.data == data for one in moving)]
    plots = [
        _panel(f"{TITLES[data]}: {figure}", drifts if "drift" in figure else moving, data, of)
        for data in names
        for figure, of in _FIGURES.items()
    ]
    legend = [Entry(name, line_look(i)) for i, name in enumerate(STRATEGIES)]
    title = "Rows that are mined over, with a cross-batch memory: mean, and range over seeds"
    save(panels(title, plots, columns=3, legend=legend), path)


def _panel(
    title: str, runs: Sequence[MemoryRun], data: str, of: Callable[[dict[str, Any]], float]
) -> Chart:
    series, scale = [], "scale" in title
    for strategy in STRATEGIES:
        x, low, middle, high = [], [], [], []
        for place, size in enumerate(SIZES):
            values = [of(one.result) for one in _at(runs, data, strategy, size)]
            values = [max(value, _LEAST) if scale else value for value in values]
            if values:
                x.append(float(place))
                low.append(min(values))
                middle.append(math.exp(mean(map(math.log, values))) if scale else mean(values))
                high.append(max(values))
        series.append(Series(strategy, x, middle, low, high))
    last = max(place for one in series for place in one.x)
    names = [f"{size:,}" if size else "none" for size in SIZES]
    ticks = {float(place): name for place, name in enumerate(names) if place <= last}
    chart = curves(
        title,
        series,
        x_label="rows of the memory",
        x_ticks=ticks,
        log=bool(scale),
        width=380.0,
        height=260.0,
    )
    return Chart(chart.title, chart.description, chart.marks, chart.width, chart.height, chart.note)
