"""Races of strategies: R@1 of held-out rows over the steps of the race, and who is out when."""

from __future__ import annotations

from uncollapse.charts import Axes, Chart, Entry, Scale, area
from uncollapse.charts.line_charts import line_look, marker_kind
from uncollapse.charts.marks import DASHES, Line, Mark
from uncollapse.charts.numbers import percent
from uncollapse.charts.theme import SERIES
from uncollapse.health.race import Race
from uncollapse.report.tables import Cell, Table

__all__ = ["RESULTS", "race_chart", "race_table"]

# How a strategy ended, as tables say it.
RESULTS = {
    "wins": "✓ chosen",
    "out": "out",
    "shrinks": "did not run: shrinks",
    "no room": "did not run: no steps left for it",
}


def race_chart(race: Race, title: str, *, start: float | None = None) -> Chart:
    """One line per strategy, ending where it is out; `start` is R@1 before any of the steps."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for lap in race.laps:
        lines.setdefault(lap.strategy, []).append((lap.steps, lap.recall))
    known = [] if start is None else [start]
    across, up = area()
    values = [*known, *(lap.recall for lap in race.laps)]
    y = Scale.around(values, *up)
    y = Scale(max(y.low, -0.02), min(y.high, 1.02), *up)
    axes = Axes(Scale(0, 1.05 * max((lap.steps for lap in race.laps), default=1), *across), y)
    marks: list[Mark] = [*axes.frame("steps of the race", share=True)]
    entries, words = [], []
    if start is not None:
        marks.append(axes.across(start))
        entries.append(Entry("untrained", (Line((1, 7), (29, 7), "soft", 1.3, (2, 4)),)))
        words.append(f"untrained: {percent(start)}")
    for i, (name, laps) in enumerate(lines.items()):
        colour = f"s{i % SERIES}"
        steps, recalls = zip(*laps, strict=True)
        said = ", ".join(f"{percent(recall)} after {step}" for step, recall in laps)
        tip = f"{name}: {said}"
        line = axes.line(steps, recalls, colour, dash=DASHES[i % len(DASHES)], tip=tip)
        tips = [tip] * len(laps)
        marks += [line, axes.points(steps, recalls, marker_kind(i), colour, tips=tips)]
        entries.append(Entry(f"{name} (chosen)" if name == race.chosen else name, line_look(i)))
        words.append(tip)
    note = f"R@1 of {race.rows:,} samples; chosen: {race.chosen}"
    return Chart(title, ". ".join(words), tuple(marks), note=note, legend=tuple(entries))


def race_table(race: Race) -> Table:
    """The last lap of each strategy, best first."""
    rows = [
        [name, lap.steps, Cell(percent(lap.recall), lap.recall), _result(race, name)]
        for name, lap in race.last.items()
    ]
    rows.sort(key=lambda row: row[0] != race.chosen)
    return Table(["strategy", "steps", "R@1", "result"], rows, first=15)


def _result(race: Race, name: str) -> str:
    return RESULTS["wins" if name == race.chosen else "out"]
