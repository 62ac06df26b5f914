"""Runs compared on one page: a table of what each reached, and their maps side by side.

With two dimensions and a set with fine labels this is EPS Fig. 2 and Table 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from uncollapse._base.check import InputError
from uncollapse.report.blocks import Cell, grid, note, paragraph, table
from uncollapse.report.charts import scatter
from uncollapse.report.config_table import config_differences
from uncollapse.report.history import read_history
from uncollapse.report.markup import Html, esc, join, number, percent
from uncollapse.report.page import Page
from uncollapse.report.project import project, projection_name
from uncollapse.report.run_curves import curve_grid, event_table, numbered_events
from uncollapse.report.snapshot import Snapshot, take_snapshot
from uncollapse.report.words import badge
from uncollapse.training import Run

__all__ = ["Comparison", "compare", "comparison_page"]

_COLUMNS = {
    "fine/recall@1": "R@1, fine labels",
    "recall@1": "R@1",
    "class_ratio": "class diameter, of the whole",
    "modes": "modes per class",
}


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs by title, and what was seen of each split of each: a `Snapshot`, or why there is none.

    `numbers` are those of the page's table; `page` is the page, to add to or to save.
    """

    runs: Mapping[str, Run]
    splits: tuple[str, ...]
    looks: Mapping[tuple[str, str], Snapshot | str]

    def numbers(self) -> list[dict[str, Any]]:
        """A dict for each run and split, for a terminal or a file.

        Keys: `run`, `split`, `verdict`, the logged `recall@1` and `fine/recall@1`, `class_ratio`
        (mean class diameter over the diameter) and `modes` (mean number of modes a class). What is
        not known is NaN, a verdict None.
        """
        return [
            {"run": name, "split": split} | _numbers(run, split, self.looks[name, split])
            for name, run in self.runs.items()
            for split in self.splits
        ]

    def page(
        self, title: str = "Runs compared", text: str = "", notes: Mapping[str, str] | None = None
    ) -> Page:
        """The page: `text` stands above everything, `notes` under the titles of single runs."""
        sets = dict.fromkeys(run.config.data.name for run in self.runs.values())
        page = Page(title, ", ".join(sets))
        if text:
            page.add("What this shows", paragraph(text), anchor="about")
        tables = join(_table(self, split) for split in self.splits)
        page.add("What each reached", tables, anchor="table")
        for split in self.splits:
            maps = _maps(self, split, notes or {})
            page.add(f"Embeddings of {split}", maps, anchor=f"maps-{split}")
        histories = {name: read_history(run) for name, run in self.runs.items()}
        events = numbered_events(list(histories.values()))
        curves = curve_grid(histories, events) + event_table(histories, events)
        page.add("Curves", Html(curves))
        page.add("Config", config_differences({n: run.config for n, run in self.runs.items()}))
        return page


def compare(
    runs: Mapping[str, Run],
    *,
    splits: Sequence[str] | None = None,
) -> Comparison:
    """What finished runs logged and measured; `runs` maps the title of each to its run.

    `splits` are the evaluation splits of the first run by default.
    """
    if not runs:
        raise InputError("runs", "none", "at least one run")
    data = next(iter(runs.values())).config.data
    used = tuple(splits or data.eval_splits or [data.train_split])
    looks = {
        (name, split): take_snapshot(run, split) for name, run in runs.items() for split in used
    }
    return Comparison(dict(runs), used, looks)


def comparison_page(
    runs: Mapping[str, Run],
    path: str | Path,
    *,
    title: str = "Runs compared",
    text: str = "",
    notes: Mapping[str, str] | None = None,
    splits: Sequence[str] | None = None,
) -> Path:
    """Compare finished runs and write the page: `compare(...).page(...).save(path)`."""
    return compare(runs, splits=splits).page(title, text, notes).save(path)


def _numbers(run: Run, split: str, found: Snapshot | str) -> dict[str, Any]:
    history = read_history(run)
    recalls = {key: history.last(f"{split}/{key}") for key in ("fine/recall@1", "recall@1")}
    numbers: dict[str, Any] = {k: math.nan if v is None else v for k, v in recalls.items()}
    health = found.health if isinstance(found, Snapshot) else None
    ratios = [one.ratio for one in health.classes if one.count > 1] if health else []
    modes = list(health.modes_per_class.values()) if health else []
    return numbers | {
        "verdict": health.verdict if health else None,
        "class_ratio": float(np.mean(ratios)) if ratios else math.nan,
        "modes": float(np.mean(modes)) if modes else math.nan,
    }


def _table(found: Comparison, split: str) -> Html:
    every = [one for one in found.numbers() if one["split"] == split]
    used = [key for key in _COLUMNS if any(not math.isnan(one[key]) for one in every)]
    rows = []
    for one in every:
        cells: list[object] = [one["run"], badge(one["verdict"])]
        for key in used:
            said = number(one[key]) if key == "modes" else percent(one[key])
            best = "recall" in key and all(one[key] >= other[key] for other in every)
            shown = Html(f"<b>{esc(said)}</b>") if best and len(every) > 1 else said
            cells.append(Cell(shown, one[key]))
        rows.append(cells)
    head = ["method", "verdict", *(_COLUMNS[key] for key in used)]
    snapshots = [found.looks[name, split] for name in found.runs]
    seen = next((one.sampled for one in snapshots if isinstance(one, Snapshot)), "")
    lines = [f"Recall as logged; class diameters and modes on {seen}."] * bool(seen)
    lines += [one for one in snapshots if isinstance(one, str)]
    bold = "; bold is the best" * (len(every) > 1)
    return Html(table(head, rows, caption=f"Split {split}{bold}") + join(map(note, lines)))


def _maps(found: Comparison, split: str, notes: Mapping[str, str]) -> Html:
    parts, missing = [], []
    for name in found.runs:
        look = found.looks[name, split]
        if isinstance(look, str):
            missing.append(note(f"{name}: {look}"))
        elif not look.finite:
            missing.append(note(f"{name}: the embedding is not finite."))
        else:
            said = (notes.get(name, ""), projection_name(look.after.shape[1]))
            small = ", ".join(part for part in said if part)
            parts.append(scatter(name, project(look.after), look.finest, small=small))
    return Html(grid(parts, wide=True) + join(missing))
