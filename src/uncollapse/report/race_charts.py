"""Races of strategies: R@1 of held-out rows over the steps of the race, and who is out when."""

from __future__ import annotations

from uncollapse._base.table import percent
from uncollapse.charts import Axes, Chart, Entry, Scale, area
from uncollapse.charts.marks import DASHES, SERIES, Mark, Points, line_look, marker_kind
from uncollapse.health.race import Race
from uncollapse.report.page import Cell, Table

__all__ = ["RECALL", "RESULTS", "race_chart", "race_table"]

RECALL = "R@1 on train"  # of samples that are not trained on
# How a strategy ended, as tables say it.
RESULTS = {"wins": "✓ chosen", "out": "out", "shrinks": "shrinks", "no room": "no room"}


def race_chart(race: Race, title: str, *, start: float | None = None) -> Chart:
    """One line per strategy, ending where it is out; `start` is R@1 before the first step."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for score in race.scores:
        first = [] if start is None else [(0, start)]
        lines.setdefault(score.strategy, first).append((score.steps, score.recall))
    across, up = area()
    y = Scale.around((recall for scores in lines.values() for _, recall in scores), *up)
    y = Scale(max(y.low, -0.02), min(y.high, 1.02), *up)
    axes = Axes(Scale(0, 1.05 * max(score.steps for score in race.scores) or 1, *across), y)
    marks: list[Mark] = [*axes.frame("steps of the race", share=True)]
    entries, words = [], []
    for i, (name, scores) in enumerate(lines.items()):
        colour, (steps, recalls) = f"s{i % SERIES}", zip(*scores, strict=True)
        said = f"{name}: " + ", ".join(f"{percent(recall)} after {step}" for step, recall in scores)
        marks.append(axes.line(steps, recalls, colour, dash=DASHES[i % len(DASHES)], tip=said))
        tips = [said] * len(scores)
        marks.append(Points(axes.places(steps, recalls), marker_kind(i), colour, tips=tips))
        entries.append(Entry(f"{name} (chosen)" if name == race.chosen else name, line_look(i)))
        words.append(said)
    note = f"R@1 of {race.rows:,} held-out training samples; chosen: {race.chosen}"
    return Chart(title, ". ".join(words), tuple(marks), note=note, legend=tuple(entries))


def race_table(race: Race) -> Table:
    """The last score of each strategy, best first."""
    rows = [
        [name, score.steps, Cell(percent(score.recall), score.recall), _result(race, name)]
        for name, score in race.last.items()
    ]
    rows.sort(key=lambda row: row[0] != race.chosen)
    return Table(["strategy", "steps", RECALL, "result"], rows, first=15)


def _result(race: Race, name: str) -> Cell:
    return Cell(RESULTS["wins" if name == race.chosen else "out"], style="whole")
