"""Suspect labels as a table on the terminal, and all rows as a .csv file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from uncollapse._base.check import visible
from uncollapse.cli.plain_lines import say

if TYPE_CHECKING:
    from rich.console import Console

    from uncollapse._base.arrays import Array
    from uncollapse.metrics import SuspectLabels

__all__ = ["show_suspects", "write_suspects"]

_HEAD = ["row", "name", "label", "suggested", "wrong", "score", "suspect", "neighbours", "labels"]


def show_suspects(
    console: Console,
    found: SuspectLabels,
    labels: Array,
    names: Sequence[str] | None,
    most: int,
) -> None:
    """The worst of them, and how many there are."""
    from uncollapse._base.table import Table

    shown = found.rows[:most].tolist()
    if shown:
        named = ["name"] * (names is not None)
        table = Table(["row", *named, "label", "suggested", "agree", "P(wrong)"])
        for row in shown:
            near = labels[found.neighbours[row]]
            agree = f"{int((near == found.suggested[row]).sum())} of {len(near)}"
            cells = [str(row), *([] if names is None else [names[row]])]
            cells += [str(labels[row]), str(found.suggested[row]), agree, f"{found.wrong[row]:.3f}"]
            table.add(*map(visible, cells))
        console.print(table)
    more = len(found.rows) - len(shown)
    say(console, str(found) + (f"; {more:,} more than shown, --csv has them all" if more else ""))


def write_suspects(
    path: Path, found: SuspectLabels, labels: Array, names: Sequence[str] | None
) -> Path:
    """Every row that could be judged, worst first, with its neighbours and their labels."""
    from uncollapse._base.files import write_csv

    suspect, lines = set(found.rows.tolist()), []
    for row in found.ranking.tolist():
        near = found.neighbours[row]
        lines.append([
            row,
            "" if names is None else names[row],
            labels[row],
            found.suggested[row],
            f"{found.wrong[row]:.6f}",
            f"{found.score[row]:.4f}",
            int(row in suspect),
            " ".join(map(str, near.tolist())),
            " | ".join(map(str, labels[near].tolist())),
        ])  # fmt: skip
    write_csv(path, _HEAD, lines)
    return path
