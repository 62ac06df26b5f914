"""A run of the demo as it happens: a row for each evaluation, and what the guard saw and did."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uncollapse._base.check import visible

if TYPE_CHECKING:
    from uncollapse._base.progress import LiveTable
    from uncollapse.cli.demo_acts import Act
    from uncollapse.health import Health

__all__ = ["RunRows", "verdict_style", "wrapped"]

_WIDTH = 78  # columns that text takes
_BAR = 20  # characters of a bar
_DECADES = 4  # of the diameter that a bar spans
_STYLES = {"healthy": "green", "shrinking": "yellow", "untrained": "dim"}


class RunRows:
    """What `train(watch=...)` is told, printed line by line; on a terminal the step runs below.

    `folder` is the run's, whose measures of the untrained network are the first row.
    """

    def __init__(self, table: LiveTable, act: Act, folder: Path, steps: int) -> None:
        self._table, self._act, self._folder, self._steps = table, act, folder, steps
        self._start: dict[str, Any] = {}
        self._latest: dict[str, Any] = {}

    def watch(self, step: int, values: Mapping[str, Any]) -> None:
        """One line of the run's log."""
        if step == 0:  # it is measured after this line, and printed with the next
            return
        if not self._start:
            self._begin()
        self._latest |= values
        if "event" in values:
            self._event(step, values)
        if self._act.score in values:
            self._row(step, self._latest)
        self._table.draw({}, [], f"  step {step} of {self._steps}")

    def ended(self, health: Health) -> None:
        """The verdict on the letters that were never trained on, with its reason."""
        said = f"On letters never trained on: {health.verdict} ({health.reasons[0]})"
        for line in wrapped(said, indent=2, hang=2):
            self._table.line((line, verdict_style(health.verdict)))

    def _begin(self) -> None:
        from uncollapse.training import Run

        before = Run(self._folder).measures().before
        split, _, name = self._act.score.partition("/")
        self._start = {
            "loss": before.batches.loss,
            "diameter": before.batches.diameter,
            self._act.score: before.splits[split].scores[name],
            "verdict": "untrained",
        }
        last = "verdict" if self._act.scale else "to untrained"
        bar = "diameter (bar: log scale)" if self._act.scale else "R@1 (bar: 0 to 100 %)"
        self._table.line((f"  {'step':>5}  {'loss':>6}  {bar:<30}  {'R@1':>6}  {last}", "dim"))
        self._row(0, self._start)

    def _row(self, step: int, values: Mapping[str, Any]) -> None:
        recall, loss = values[self._act.score], values.get("loss", math.nan)
        first = f"  {step:>5}  {loss:6.4f}  "
        if self._act.scale:
            size, verdict = values.get("diameter", math.nan), values.get("verdict", "")
            bar = f"{size:8.2g}  {_bar(_decades_left(size, self._start['diameter'])):<{_BAR}}"
            last, style = verdict, verdict_style(verdict)
        else:
            bar = f"{_bar(recall):<{_BAR + 10}}"
            change = 100 * (recall - self._start[self._act.score])
            last = f"{change:+.1f}" if step else "untrained"
            style = "dim" if not step else "green" if change > 0 else "red"
        self._table.line((first, ""), (bar, style), (f"  {recall:6.1%}  ", ""), (last, style))

    def _event(self, step: int, values: Mapping[str, Any]) -> None:
        """What the guard saw and did; of a race, its scores."""
        from uncollapse.health.race import Race

        text, scores = str(values["event"]), []
        if "race" in values:
            race = Race.from_dict(values["race"])
            text = text.replace(f" ({race})", "")
            scores = [f"race, judged by R@1 of {race.rows} held-out training samples:"]
            for name, score in race.last.items():
                mark = "  <- chosen" if name == race.chosen else ""
                scores.append(f"  {name:<26} {score.recall:6.1%} after {score.steps} steps{mark}")
        for line in wrapped(f"! step {step}: {text}", indent=9, hang=2):
            self._table.line((line, "bold"))
        for line in scores:
            self._table.line((f"{'':11}{line}", "bold"))


def verdict_style(verdict: str) -> str:
    """The colour of a verdict on a terminal."""
    return _STYLES.get(verdict, "red")


def wrapped(text: str, *, indent: int = 0, hang: int = 0) -> list[str]:
    """Text in lines of at most 78 columns; those after the first begin `hang` columns further in.

    >>> wrapped("to be " * 15, indent=2, hang=2)[1]
    '    be to be to be'
    """
    first, later = " " * indent, " " * (indent + hang)
    return textwrap.wrap(visible(text), _WIDTH, initial_indent=first, subsequent_indent=later)


def _decades_left(size: float, start: float) -> float:
    """Of the decades below the start that a bar spans, the share that is left."""
    if not size > 0 or not start > 0:
        return 0.0
    return 1 + math.log10(size / start) / _DECADES


def _bar(share: float) -> str:
    """A bar of full and half blocks.

    >>> _bar(0.5), _bar(0.0)
    ('██████████', '')
    """
    halves = round(2 * _BAR * min(max(share, 0.0), 1.0))
    return "█" * (halves // 2) + "▌" * (halves % 2)
