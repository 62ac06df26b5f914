"""The page of `uncollapse demo`: what happened in each act, its curves, maps and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from uncollapse._base.table import Cell, Table, percent
from uncollapse.charts import Chart, scatter
from uncollapse.health import Health
from uncollapse.report import parts, run_page
from uncollapse.report.page import Page
from uncollapse.training.run import Run, start_scores

__all__ = ["Story", "make_demo_page"]

_MAPPED = 12  # classes on a map


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
    def snapshots(self) -> dict[str, run_page.Snapshot]:
        """Each run's embeddings before and after training."""
        split = self.score.partition("/")[0]
        return {name: run_page.take_snapshot(run, split) for name, run in self.runs.items()}

    @cached_property
    def histories(self) -> dict[str, run_page.History]:
        """What each run logged."""
        return {name: run_page.read_history(run) for name, run in self.runs.items()}

    @cached_property
    def ends(self) -> dict[str, End]:
        """How each run ended."""
        ends = {}
        for name, run in self.runs.items():
            history, before = self.histories[name], start_scores(run)[self.score]
            after = run.summary["metrics"][self.score]
            ends[name] = End(before, after, history.last("loss"), self.snapshots[name].health)
        return ends


def make_demo_page(stories: Sequence[Story], seed: int) -> Page:
    """The page, to save."""
    content = {
        "title": "How embeddings collapse, and what saves them",
        "lead": f"uncollapse demo, seed {seed}: letters drawn by the package; every figure is of "
        "letters that were never trained on",
        "acts": [_act(story, f"act{i}") for i, story in enumerate(stories, 1)],
    }
    return Page("demo.html.j2", content)


def _act(story: Story, anchor: str) -> dict[str, Any]:
    wanted = ("loss", "diameter", story.score)
    rows, verdicts = [], []
    for name, (before, after, loss, health) in story.ends.items():
        reason = health.reasons[0]
        verdict = parts.verdict_text(health.verdict, health.reasons)
        verdicts.append({"name": name, "reason": f"{reason[:1].upper()}{reason[1:]}."} | verdict)
        rows.append(
            [
                name,
                parts.verdict_cell(health.verdict),
                *map(parts.share_cell, (before, after)),
                None if loss is None else Cell(f"{loss:.4f}", loss),
                health.diameter,
                parts.share_cell(health.relative_diameter),
            ]
        )
    head = ["run", "verdict", f"{run_page.key_name(story.score)}: untrained", "trained"]
    head += ["last loss", "diameter", "diameter, of its start"]
    drawn = {
        name: run_page.History({k: one.curves[k] for k in wanted if k in one.curves}, one.events)
        for name, one in story.histories.items()
    }
    return {
        "anchor": anchor,
        "title": story.title,
        "text": story.text,
        "verdicts": verdicts,
        "table": Table(head, rows),
        **run_page.curve_content(drawn),
        "races": [
            race
            for history in story.histories.values()
            for race in run_page.race_content(history, str.capitalize)
        ],
        "maps": _maps(story),
    }


def _maps(story: Story) -> list[Chart]:
    """The untrained embedding, which the runs share, and each trained one: the same classes."""
    start = next(iter(story.snapshots.values()))
    names, first = np.unique(start.labels, return_index=True)
    mapped = np.isin(start.labels, names[np.argsort(first)[:_MAPPED]])
    ends = story.ends
    charts = {"untrained": (start.before, next(iter(ends.values())).before, "healthy")}
    for name, end in ends.items():
        charts[name] = story.snapshots[name].after, end.after, end.health.verdict
    return [
        scatter(
            name,
            parts.project(z[mapped]),
            # Of a point there is nothing to name.
            None if verdict == "network-collapse" else start.labels[mapped],
            note=f"R@1 {percent(recall)}",
        )
        for name, (z, recall, verdict) in charts.items()
        if np.isfinite(z.numpy()).all()
    ]
