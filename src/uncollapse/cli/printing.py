"""What commands print: lines, warnings, tables of scores. Markup in foreign text is only shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.status import Status

import uncollapse as uc
from uncollapse._base.check import visible
from uncollapse._base.table import Table, wrapped_for

_TITLES = {"fold_accuracy": "fold accuracy", "fold_standard_error": "±", "auc": "AUC", "eer": "EER"}
_TITLES |= {"map@r": "MAP@R", "nmi": "NMI", "nmi+": "NMI+", "r_precision": "R-precision"}


def say(text: str, *, whole: bool = False, style: str = "", console: Console | None = None) -> None:
    """Print a line without markup; control characters and marks are shown.

    On a terminal it is wrapped between words, for a person; elsewhere, and if it must stay `whole`
    because it will be copied, it is one line.
    """
    console = console or Console()
    shown = visible(text)
    if console.is_terminal and not whole:
        shown = wrapped_for(console.width, shown)
    console.print(shown, markup=False, highlight=False, soft_wrap=True, style=style)


def show(*things: object) -> None:
    """Print tables, or text of our own with markup."""
    Console(highlight=False).print(*things, sep="\n")


def status(text: str) -> Status:
    """A line about the work in progress, removed when it is done."""
    return Console().status(text)


def warn(text: str) -> None:
    """Print a warning as one yellow line; the command continues."""
    say(f"warning: {one_line(text)}", style="yellow", console=Console(stderr=True))


def warn_of_skipped(data: uc.data.LabelledImages, split: str) -> None:
    """Which files of a dataset were skipped: counts and the first names."""
    if data.report.skipped:
        warn(f"{split}: {data.report.skipped_summary()}")


def one_line(text: str) -> str:
    """The text without line breaks, control characters shown."""
    return visible(" ".join(text.split()))


@dataclass(frozen=True)
class ScoreLine:
    """One figure: its name to a program and to a reader, and which rows it is over.

    `interval` is None where a figure has none, `value` where it cannot be computed.
    """

    name: str
    title: str
    value: float | None
    over: str
    interval: uc.metrics.Interval | None = None
    by: str = "label"
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """For a JSON file."""
        named = {"by": self.by, "name": self.name, "value": self.value, "over": self.over}
        return named | {bound: getattr(self.interval, bound, None) for bound in ("low", "high")}

    def cells(self) -> list[str]:
        """Title, value and interval, in per cent."""
        i = self.interval
        between = "–" if i is None else f"{100 * i.low:.2f} – {100 * i.high:.2f}"
        known = self.value is not None and self.value == self.value
        return [self.title, f"{100 * (self.value or 0.0):.2f}" if known else "–", between]


def line_table(lines: Sequence[ScoreLine], threshold: str = "") -> Table:
    """One row per figure, in per cent; with `threshold`, a column of that name for the notes."""
    kinds = list(dict.fromkeys(line.by for line in lines))
    several = len(kinds) > 1
    heads = [*["by"] * several, "figure", "%", "95% interval", *[threshold] * bool(threshold)]
    table = Table([*heads, "over"], keys=1 + several)
    for line in sorted(lines, key=lambda line: kinds.index(line.by)):
        notes = [line.note or "–"] * bool(threshold)
        cells = [*[line.by] * several, *line.cells(), *notes, line.over]
        table.add(*map(visible, cells))
    return table


def split_tables(
    scores: Mapping[str, float], start: Mapping[str, float] | None = None
) -> list[Table]:
    """A table of what ranks rows, and one of what verifies pairs, where there is such.

    Rows are split and kind of label, columns the metrics; each under that before training.
    """
    tables = []
    for head, of_pairs in (("split", False), ("pairs of", True)):
        ends, begins = _by_group(scores, of_pairs), _by_group(start or {}, of_pairs)
        metrics = list(dict.fromkeys(metric for row in ends.values() for metric in row))
        both = any(set(begins.get(group, ())) & set(row) for group, row in ends.items())
        table = Table([head, *["training"] * both, *map(_title, metrics)], keys=1 + both)
        for group, row in ends.items():
            moments = {"before": begins.get(group, {}), "after": row} if both else {"": row}
            for moment, values in moments.items():
                if any(metric in values for metric in metrics):
                    cells = (f"{100 * values[m]:.2f}" if m in values else "" for m in metrics)
                    table.add(visible(group), *[moment] * both, *cells)
        tables += [table] if ends else []
    return tables


def _by_group(scores: Mapping[str, float], of_pairs: bool) -> dict[str, dict[str, float]]:
    """Figures of pairs, or the others, by split and kind of label."""
    of_verification = uc.training.evaluation.VERIFICATION
    rows: dict[str, dict[str, float]] = {}
    for key, value in scores.items():
        if (of_verification in key) is of_pairs:
            group, _, metric = key.replace(of_verification, "").rpartition("/")
            rows.setdefault(group, {})[metric] = value
    return rows


def _title(metric: str) -> str:
    return _TITLES.get(metric) or metric.replace("recall@", "R@").replace("tar@", "TAR@")
