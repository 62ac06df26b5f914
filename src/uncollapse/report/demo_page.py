"""The page of `uncollapse demo`: what happened in each act, its curves, maps and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse._base.table import percent
from uncollapse.charts import Chart, Event, scatter
from uncollapse.health import Health
from uncollapse.report.page import Cell, Page, Table, verdict_cell, verdict_text
from uncollapse.report.projection import project
from uncollapse.report.race_charts import race_chart, race_table
from uncollapse.report.run_page import (
    History,
    Snapshot,
    curve_charts,
    event_table,
    key_name,
    numbered_events,
    read_history,
    take_snapshot,
)
from uncollapse.training import NotMeasuredError, Run

__all__ = ["End", "Story", "make_demo_page"]

_MAPPED = 12  # classes on a map
_COMMANDS = (
    ("Is it collapsed?", "uncollapse diagnose embeddings.npz --html diagnosis.html"),
    ("Will it collapse? Before training", "uncollapse forecast run.toml --race"),
    ("Train, and be rescued", "uncollapse train run.toml --set guard.action=rescue"),
)


class End(NamedTuple):
    """How a run ended: R@1 of the untrained and the trained network, the loss, and the health."""

    before: float
    after: float
    loss: float | None
    health: Health


@dataclass(frozen=True, eq=False)
class Story:
    """Runs of one act by name; `score` is the logged R@1 (`test/recall@1`) they are told by."""

    title: str
    text: str
    score: str
    runs: Mapping[str, Run]

    @cached_property
    def split(self) -> str:
        """The split that the figures are of."""
        return self.score.partition("/")[0]

    @cached_property
    def looks(self) -> dict[str, Snapshot]:
        """Each run's embeddings before and after training."""
        found = {}
        for name, run in self.runs.items():
            look = take_snapshot(run, self.split)
            if isinstance(look, str):
                raise NotMeasuredError(run.path, f"measures of the split {self.split!r}")
            found[name] = look
        return found

    @cached_property
    def histories(self) -> dict[str, History]:
        """What each run logged."""
        return {name: read_history(run) for name, run in self.runs.items()}

    @cached_property
    def ends(self) -> dict[str, End]:
        """How each run ended."""
        key = self.score.partition("/")[2]
        found = {}
        for name, run in self.runs.items():
            measures, look = run.measures(), self.looks[name]
            assert measures.after is not None  # there is a snapshot
            before, after = (
                one.splits[self.split].scores[key] for one in (measures.before, measures.after)
            )
            found[name] = End(before, after, self.histories[name].last("loss"), look.health)
        return found


def make_demo_page(stories: Sequence[Story], seed: int) -> Page:
    """The page, to save."""
    content = {
        "title": "How embeddings collapse, and what saves them",
        "lead": f"uncollapse demo, seed {seed}: letters drawn by the package; every figure is of "
        "letters that were never trained on",
        "acts": [_act(story, f"act{i}") for i, story in enumerate(stories, 1)],
        "commands": Table(
            ["question", "command"],
            [[question, Cell(command, style="code")] for question, command in _COMMANDS],
        ),
    }
    return Page("demo.html.j2", content)


def _act(story: Story, anchor: str) -> dict[str, Any]:
    events = numbered_events(list(story.histories.values()))
    return {
        "anchor": anchor,
        "title": story.title,
        "text": story.text,
        "told": [_told(name, end) for name, end in story.ends.items()],
        "table": _table(story),
        "curves": _curves(story, events),
        "events": event_table(story.histories, events),
        "races": [
            {"chart": race_chart(race, f"Race at step {step}"), "table": race_table(race)}
            for history in story.histories.values()
            for step, race in history.races
        ],
        "maps": _maps(story),
    }


def _told(name: str, end: End) -> dict[str, str]:
    """One sentence on a run, with the verdict's look."""
    text = verdict_text(end.health.verdict, end.health.reasons)
    scores = (
        f"R@1 on unseen letters {percent(end.before)} before training, {percent(end.after)} after."
    )
    reason = end.health.reasons[0]
    return {
        "name": name,
        "glyph": text.glyph,
        "tone": text.tone,
        "headline": text.headline,
        "text": f"{scores} {reason[:1].upper()}{reason[1:]}.",
    }


def _table(story: Story) -> Table:
    rows = []
    for name, end in story.ends.items():
        health = end.health
        size = health.relative_diameter
        rows.append(
            [
                name,
                verdict_cell(health.verdict),
                Cell(percent(end.before), end.before),
                Cell(percent(end.after), end.after),
                None if end.loss is None else Cell(f"{end.loss:.4f}", end.loss),
                health.diameter,
                None if size is None else Cell(percent(size), size),
            ]
        )
    name = key_name(story.score)
    head = ["run", "verdict", f"{name}: untrained", "trained", "last loss", "diameter"]
    return Table([*head, "diameter, of its start"], rows)


def _curves(story: Story, events: Sequence[Sequence[Event]]) -> list[Chart]:
    """Loss, diameter and R@1, one line per run."""
    wanted = ("loss", "diameter", story.score)
    kept = {
        name: History({key: one.curves[key] for key in wanted if key in one.curves}, one.events)
        for name, one in story.histories.items()
    }
    return curve_charts(kept, events)


def _maps(story: Story) -> list[Chart]:
    """The untrained embedding, which the runs share, and each trained one: the same classes."""
    first = next(iter(story.looks.values()))
    names = first.finest
    shown = np.isin(names, _first_names(names))
    planes = {"untrained": first.before} | {n: look.after for n, look in story.looks.items()}
    ends = story.ends
    notes = {name: f"R@1 {percent(end.after)}" for name, end in ends.items()}
    notes["untrained"] = f"R@1 {percent(next(iter(ends.values())).before)}"
    points = [name for name, end in ends.items() if end.health.verdict == "network-collapse"]
    return [
        # Of a point there is nothing to name.
        scatter(name, project(z[shown]), None if name in points else names[shown], note=notes[name])
        for name, z in planes.items()
        if np.isfinite(z.numpy()).all()
    ]


def _first_names(names: Array) -> Array:
    """The classes that rows begin with."""
    _, first = np.unique(names, return_index=True)
    return names[np.sort(first)[:_MAPPED]]
