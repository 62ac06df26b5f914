"""The page of `uncollapse demo`: what happened in each act, its curves, maps and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from uncollapse._base.table import Cell, Table, percent
from uncollapse.charts import Chart, scatter
from uncollapse.report import parts, run_page
from uncollapse.report.page import Page
from uncollapse.training.measures import RunFolder, start_scores

_MAPPED = 12  # classes on a map


class End(NamedTuple):
    """R@1 of a run's untrained and trained network, what it logged, and its embeddings."""

    before: float
    after: float
    history: run_page.History
    snapshot: run_page.Snapshot


@dataclass(frozen=True, eq=False)
class Story:
    """Runs of one act by name; they are compared by `score`, a logged R@1 (`test/recall@1`)."""

    title: str
    text: str
    score: str
    runs: Mapping[str, RunFolder]

    @cached_property
    def ends(self) -> dict[str, End]:
        """How each run ended."""
        ends = {}
        for name, run in self.runs.items():
            before, after = start_scores(run)[self.score], run.summary["metrics"][self.score]
            snapshot = run_page.take_snapshot(run, self.score.partition("/")[0])
            ends[name] = End(before, after, run_page.read_history(run), snapshot)
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
    verdicts, races, drawn = [], [], {}
    for name, (_, _, history, snapshot) in story.ends.items():
        health = snapshot.health
        reason = health.reasons[0]
        verdict = parts.verdict_text(health.verdict, health.reasons)
        verdicts.append({"name": name, "reason": f"{reason[:1].upper()}{reason[1:]}."} | verdict)
        shown = {key: history.curves[key] for key in wanted if key in history.curves}
        drawn[name] = run_page.History(shown, history.events)
        races += run_page.race_content(history, str.capitalize)
    return {
        "anchor": anchor,
        "title": story.title,
        "text": story.text,
        "verdicts": verdicts,
        "table": act_table(story),
        **run_page.curve_content(drawn),
        "races": races,
        "maps": _maps(story),
    }


def act_table(story: Story) -> Table:
    """How each run of an act ended."""
    head = ["run", "verdict", f"{run_page.key_name(story.score)}: untrained", "trained"]
    table = Table([*head, "last loss", "diameter", "of its start"])
    for name, (before, after, history, snapshot) in story.ends.items():
        health, loss = snapshot.health, history.last("loss")
        table.add(
            name,
            parts.verdict_cell(health.verdict),
            *map(parts.share_cell, (before, after)),
            None if loss is None else Cell(f"{loss:.4f}", loss),
            health.diameter,
            parts.share_cell(health.relative_diameter),
        )
    return table


def _maps(story: Story) -> list[Chart]:
    """The untrained embedding, which the runs share, and each trained one: the same classes."""
    recall, _, _, start = next(iter(story.ends.values()))
    names, first = np.unique(start.labels, return_index=True)
    mapped = np.isin(start.labels, names[np.argsort(first)[:_MAPPED]])
    charts = {"untrained": (start.before, recall, "healthy")}
    for name, end in story.ends.items():
        charts[name] = end.snapshot.after, end.after, end.snapshot.health.verdict
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
