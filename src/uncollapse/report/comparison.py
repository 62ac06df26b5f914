"""Runs compared on one page: a table of what each reached, and their maps side by side.

With two dimensions and a set with fine labels this is EPS Fig. 2 and Table 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from uncollapse._check import InputError
from uncollapse.report.blocks import Cell, grid, note, paragraph, table
from uncollapse.report.charts import scatter
from uncollapse.report.config_table import config_differences
from uncollapse.report.history import key_name, read_history
from uncollapse.report.markup import Html, esc, join, number, percent
from uncollapse.report.page import Page
from uncollapse.report.project import project, projection_name
from uncollapse.report.run_curves import curve_grid, numbered_events
from uncollapse.report.snapshot import Snapshot, take_snapshot
from uncollapse.report.words import badge
from uncollapse.training import Run

__all__ = ["comparison_page", "comparison_rows"]

Looks = dict[str, dict[str, Snapshot | str]]


def comparison_page(
    runs: Mapping[str, Run],
    path: str | Path,
    *,
    title: str = "Runs compared",
    text: str = "",
    notes: Mapping[str, str] | None = None,
    splits: Sequence[str] | None = None,
    rows: int = 1500,
    seed: int = 0,
) -> Path:
    """Write a page that compares finished runs; `runs` maps the title of each to its run.

    `text` stands above everything, `notes` under the titles of single runs. `splits` are those
    looked at, the evaluation splits of the first run by default; recall is what the runs logged,
    the other figures are measured on at most `rows` samples of a split.
    """
    looks = _look(runs, splits, rows, seed)
    used = list(next(iter(looks.values())))
    page = Page(title, ", ".join(dict.fromkeys(run.config.data.name for run in runs.values())))
    if text:
        page.add("What this shows", paragraph(text), anchor="about")
    page.add("What each reached", Html(join(_table(runs, looks, split) for split in used)), anchor="table")
    for split in used:
        page.add(f"Embeddings of {split}", _maps(looks, split, notes or {}), anchor=f"maps-{split}")
    histories = {name: read_history(run) for name, run in runs.items()}
    page.add("Curves", curve_grid(histories, numbered_events(list(histories.values()))))
    page.add("Config", config_differences({name: run.config for name, run in runs.items()}))
    return page.save(path)


def comparison_rows(
    runs: Mapping[str, Run], *, splits: Sequence[str] | None = None, rows: int = 1500, seed: int = 0
) -> list[dict[str, Any]]:
    """The numbers of the page's table: a dict for each run and split, for a terminal or a file.

    Keys: `run`, `split`, `verdict`, the logged `recall@1` and `fine/recall@1`, `class_ratio` (mean
    class diameter over the diameter), `modes` (mean number of modes a class).
    """
    looks = _look(runs, splits, rows, seed)
    return [
        {"run": name, "split": split} | _numbers(runs[name], split, found)
        for name, by_split in looks.items()
        for split, found in by_split.items()
    ]


def _look(
    runs: Mapping[str, Run], splits: Sequence[str] | None, rows: int, seed: int
) -> Looks:
    if not runs:
        raise InputError("runs", "none", "at least one run")
    used = list(splits or next(iter(runs.values())).config.data.eval_splits)
    return {
        name: {split: take_snapshot(run, split, rows=rows, seed=seed) for split in used}
        for name, run in runs.items()
    }


def _numbers(run: Run, split: str, found: Snapshot | str) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    history = read_history(run)
    for key in ("fine/recall@1", "recall@1"):
        value = history.last(f"{split}/{key}")
        if value is not None:
            numbers[key] = value
    if isinstance(found, Snapshot):
        health = found.health
        numbers["verdict"] = health.verdict
        ratios = [one.ratio for one in health.classes if one.count > 1]
        numbers["class_ratio"] = float(np.mean(ratios)) if ratios else None
        modes = list(health.modes_per_class.values())
        numbers["modes"] = float(np.mean(modes)) if modes else None
    return numbers


def _table(runs: Mapping[str, Run], looks: Looks, split: str) -> Html:
    found = {name: _numbers(run, split, looks[name][split]) for name, run in runs.items()}
    kinds = {
        "fine/recall@1": (key_name("fine/recall@1"), percent, max),
        "recall@1": (key_name("recall@1"), percent, max),
        "class_ratio": ("class diameter, of the whole", percent, None),
        "modes": ("modes per class", number, None),
    }
    used = {k: v for k, v in kinds.items() if any(one.get(k) is not None for one in found.values())}
    rows = []
    for name, one in found.items():
        cells: list[object] = [name, badge(one.get("verdict"))]
        for key, (_, say, pick) in used.items():
            value = one.get(key)
            known = [other[key] for other in found.values() if other.get(key) is not None]
            best = pick is not None and len(known) > 1 and value == pick(known)
            shown = Html(f"<b>{esc(say(value))}</b>") if best else say(value)
            cells.append(Cell(shown, value))
        rows.append(cells)
    head = ["method", "verdict", *(title for title, _, _ in used.values())]
    sentences = [look for by_split in looks.values() if isinstance(look := by_split[split], str)]
    seen = next((l.sampled for b in looks.values() if isinstance(l := b[split], Snapshot)), "")
    caption = f"Split {split}"
    small = f"Recall as logged; class diameters and modes on {seen}. Bold: the best." * bool(seen)
    return Html(table(head, rows, caption=caption) + join(note(s) for s in [small, *sentences] if s))


def _maps(looks: Looks, split: str, notes: Mapping[str, str]) -> Html:
    parts, missing = [], []
    for name, by_split in looks.items():
        found = by_split[split]
        if isinstance(found, str):
            missing.append(note(f"{name}: {found}"))
        elif not found.finite:
            missing.append(note(f"{name}: the embedding is not finite."))
        else:
            small = ", ".join(s for s in (notes.get(name, ""), projection_name(found.after.shape[1])) if s)
            parts.append(scatter(name, project(found.after), found.finest, small=small))
    return Html(grid(parts, wide=True) + join(missing))
