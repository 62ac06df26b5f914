"""What commands print: lines, warnings and tables of scores. Text of others is never obeyed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console

from uncollapse._base.check import visible
from uncollapse._base.table import Table, wrapped_for

if TYPE_CHECKING:
    from rich.status import Status

    from uncollapse.data import LabelledImages
    from uncollapse.metrics import Interval

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
    """A line about what is being done, gone when it is done."""
    return Console().status(text)


def warn(text: str) -> None:
    """One yellow line that a user should know of; the command goes on."""
    say(f"warning: {one_line(text)}", style="yellow", console=Console(stderr=True))


def warn_of_skipped(data: LabelledImages, split: str) -> None:
    """Which files of a dataset were skipped: counts and the first names."""
    if data.report.skipped:
        text = f"warning: {split}: {data.report.skipped_summary()}"
        Console(stderr=True, soft_wrap=True).print(text, highlight=False, markup=False)


def one_line(text: str) -> str:
    """The text without line breaks, control characters shown."""
    return visible(" ".join(text.split()))


@dataclass(frozen=True)
class ScoreLine:
    """One figure: its name to a program and to a reader, and which rows it is over.

    `low` and `high` are None where a figure has no interval, `value` where it cannot be said.
    """

    name: str
    title: str
    value: float | None
    over: str
    low: float | None = None
    high: float | None = None
    by: str = "label"
    note: str = ""

    @classmethod
    def between(
        cls, name: str, title: str, interval: Interval, over: str, by: str = "label"
    ) -> ScoreLine:
        """A figure with its interval."""
        return cls(name, title, interval.value, over, interval.low, interval.high, by)

    def to_dict(self) -> dict[str, Any]:
        """For a JSON file."""
        kept = ("by", "name", "value", "low", "high", "over")
        return {name: getattr(self, name) for name in kept}

    def cells(self) -> list[str]:
        """Title, value and interval, in per cent."""
        between = "–"
        if self.low is not None and self.high is not None:
            between = f"{100 * self.low:.2f} – {100 * self.high:.2f}"
        known = self.value is not None and self.value == self.value
        return [self.title, f"{100 * (self.value or 0.0):.2f}" if known else "–", between]


def line_table(lines: Sequence[ScoreLine], threshold: str = "") -> Table:
    """One row per figure, in per cent; with `threshold`, a column of that name for the notes."""
    kinds = list(dict.fromkeys(line.by for line in lines))
    several = len(kinds) > 1
    heads = [*["by"] * several, "figure", "%", "95% interval"]
    heads += [threshold] if threshold else []
    table = Table([*heads, "over"], keys=1 + several)
    for kind in kinds:
        for line in lines:
            if line.by == kind:
                notes = [line.note] if threshold else []
                cells = [*[kind] * several, *line.cells(), *notes, line.over]
                table.add(*map(visible, cells))
    return table


def split_tables(
    scores: Mapping[str, float], start: Mapping[str, float] | None = None
) -> list[Table]:
    """A table of what ranks rows, and one of what verifies pairs, where there is such."""
    from uncollapse.training.evaluation import VERIFICATION

    tables = []
    for head, of_pairs in (("split", False), ("pairs of", True)):
        ends, begins = (
            {
                k.replace(VERIFICATION, ""): v
                for k, v in values.items()
                if (VERIFICATION in k) is of_pairs
            }
            for values in (scores, start or {})
        )
        tables += [_split_table(ends, begins, head)] if ends else []
    return tables


def _split_table(scores: Mapping[str, float], start: Mapping[str, float], head: str) -> Table:
    """Rows are split and kind of label, columns the metrics; each under that before training."""
    ends, begins = _by_group(scores), _by_group(start)
    metrics = list(dict.fromkeys(metric for row in ends.values() for metric in row))
    both = any(set(begins.get(group, ())) & set(row) for group, row in ends.items())
    titles = (_TITLES.get(m, m.replace("recall@", "R@").replace("tar@", "TAR@")) for m in metrics)
    table = Table([head, *["training"] * both, *titles], keys=1 + both)
    for group, row in ends.items():
        moments = {"before": begins.get(group, {}), "after": row} if both else {"": row}
        for moment, values in moments.items():
            if any(metric in values for metric in metrics):
                cells = (f"{100 * values[m]:.2f}" if m in values else "" for m in metrics)
                table.add(visible(group), *[moment] * both, *cells)
    return table


def _by_group(scores: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """By split and kind of label."""
    rows: dict[str, dict[str, float]] = {}
    for key, value in scores.items():
        group, _, metric = key.rpartition("/")
        rows.setdefault(group, {})[metric] = value
    return rows
