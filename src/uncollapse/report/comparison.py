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
from uncollapse.report.comparison_page import make_comparison_page
from uncollapse.report.page import Page
from uncollapse.report.run_page import Snapshot, read_history, take_snapshot
from uncollapse.training import Run
from uncollapse.training.run import start_scores

__all__ = ["Comparison", "compare", "write_comparison"]


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

        Keys: `run`, `split`, `verdict`, the logged `recall@1` and `fine/recall@1`, the same before
        training as `recall@1_start` and `fine/recall@1_start`, `class_ratio`
        (mean class diameter over the diameter), `modes` (mean number of modes a class),
        `fine_start` and `fine_end` (how often a row's nearest neighbour inside its class shares
        its fine label, before and after training). What is not known is NaN, a verdict None.
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
        return make_comparison_page(self, title, text, notes or {})


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


def write_comparison(
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
    before = start_scores(run)
    recalls |= {f"{key}_start": before.get(f"{split}/{key}") for key in [*recalls]}
    numbers: dict[str, Any] = {key: _known(value) for key, value in recalls.items()}
    health = found.health if isinstance(found, Snapshot) else None
    ratios = [one.ratio for one in health.classes if one.count > 1] if health else []
    modes = list(health.modes_per_class.values()) if health else []
    return numbers | {
        "verdict": health.verdict if health else None,
        "class_ratio": float(np.mean(ratios)) if ratios else math.nan,
        "modes": float(np.mean(modes)) if modes else math.nan,
        "fine_start": _known(found.start.fine_agreement if isinstance(found, Snapshot) else None),
        "fine_end": _known(health.fine_agreement if health else None),
    }


def _known(value: float | None) -> float:
    return math.nan if value is None else value
