"""The page of compared runs: a table of what each reached, and their maps side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from uncollapse.charts import scatter
from uncollapse.charts.text import number, percent
from uncollapse.report.page import Cell, Page, Table, config_differences, verdict_cell
from uncollapse.report.projection import project, projection_name
from uncollapse.report.run_page import (
    Snapshot,
    curve_charts,
    event_table,
    numbered_events,
    read_history,
)
from uncollapse.training.run import ends_below

if TYPE_CHECKING:
    from uncollapse.report.comparison import Comparison

__all__ = ["comparison_content", "make_comparison_page"]

_FIGURES = {
    "fine_start": "neighbours in the class, same fine label: start",
    "fine_end": "neighbours in the class, same fine label: end",
    "fine/recall@1_start": "R@1 by fine labels on {split}, before training",
    "fine/recall@1": "R@1 by fine labels on {split}",
    "recall@1_start": "R@1 on {split}, before training",
    "recall@1": "R@1 on {split}",
    "class_ratio": "class diameter, of the whole",
    "modes": "modes per class",
}


def make_comparison_page(
    found: Comparison, title: str, text: str, notes: Mapping[str, str]
) -> Page:
    """The page; `text` stands above everything, `notes` under the titles of single runs."""
    content = comparison_content(found, notes)
    return Page("comparison.html.j2", {"title": title, "text": text} | content)


def comparison_content(found: Comparison, notes: Mapping[str, str]) -> dict[str, Any]:
    """What the template shows below the title and the text."""
    histories = {name: read_history(run) for name, run in found.runs.items()}
    events = numbered_events(list(histories.values()))
    sets = dict.fromkeys(run.config.data.name for run in found.runs.values())
    return {
        "lead": ", ".join(sets),
        "splits": [
            {"name": split, **_scores(found, split), **_maps(found, split, notes)}
            for split in found.splits
        ],
        "curves": curve_charts(histories, events),
        "events": event_table(histories, events),
        "config": config_differences({name: run.config for name, run in found.runs.items()}),
    }


def _scores(found: Comparison, split: str) -> dict[str, Any]:
    every = [one for one in found.numbers() if one["split"] == split]
    used = [key for key in _FIGURES if any(not math.isnan(one[key]) for one in every)]
    # A column per run: pages have room for few runs and many figures, not the other way round.
    rows: list[list[object]] = [["verdict", *(verdict_cell(one["verdict"]) for one in every)]]
    for key in used:
        scored = (key.endswith("recall@1") or key == "fine_end") and len(every) > 1
        most = max(one[key] for one in every)
        cells: list[object] = [_FIGURES[key].replace("{split}", split)]
        for one in every:
            text = number(one[key]) if key == "modes" else percent(one[key])
            cells.append(Cell(text, one[key], style="best" * (scored and one[key] == most)))
        rows.append(cells)
    head = ["", *(one["run"] for one in every)]
    looks = [found.looks[name, split] for name in found.runs]
    bold = "; bold is the best" * (len(every) > 1)
    return {
        "below": [line for one in every for line in _below(one, split)],
        "table": Table(head, rows, title=f"Split {split}{bold}"),
        "sampled": next((one.sampled for one in looks if isinstance(one, Snapshot)), ""),
        "unseen": [one for one in looks if isinstance(one, str)],
    }


def _below(one: Mapping[str, Any], split: str) -> list[str]:
    """Where a run ends below its network before training."""
    keys = ("recall@1", "fine/recall@1")
    start, end = ({f"{split}/{key}": one[key + mark] for key in keys} for mark in ("_start", ""))
    return [f"{one['run']}: {sentence}" for sentence in ends_below(start, end)]


def _maps(found: Comparison, split: str, notes: Mapping[str, str]) -> dict[str, Any]:
    charts, missing = [], []
    for name in found.runs:
        look = found.looks[name, split]
        if isinstance(look, str):
            missing.append(f"{name}: {look}")
        elif not look.finite:
            missing.append(f"{name}: the embedding is not finite.")
        else:
            texts = (notes.get(name, ""), projection_name(look.after.shape[1]))
            small = ", ".join(text for text in texts if text)
            charts.append(scatter(name, project(look.after), look.finest, note=small))
    return {"maps": charts, "missing": missing}
