"""Scores as tables: of a run's splits, and of a file line by line with what each is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from uncollapse._base.check import visible

if TYPE_CHECKING:
    from uncollapse._base.table import Table
    from uncollapse.metrics import Interval

__all__ = [
    "ScoreLine",
    "line_table",
    "pair_table",
    "score_pairs",
    "split_table",
    "split_tables",
]

_TITLES = {"fold_accuracy": "fold accuracy", "fold_standard_error": "±", "auc": "AUC", "eer": "EER"}
_TITLES |= {"map@r": "MAP@R", "nmi": "NMI", "nmi+": "NMI+", "r_precision": "R-precision"}


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
        return {
            "by": self.by,
            "name": self.name,
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "over": self.over,
            **({"note": self.note} if self.note else {}),
        }


def split_tables(
    scores: Mapping[str, float], start: Mapping[str, float] | None = None
) -> list[Table]:
    """`split_table` of what ranks rows, and one of what verifies pairs, where there is such."""
    from uncollapse.training.evaluation import VERIFICATION

    tables = []
    for head, of_pairs in (("split", False), ("pairs of", True)):
        mine, began = (
            {
                k.replace(VERIFICATION, ""): v
                for k, v in some.items()
                if (VERIFICATION in k) is of_pairs
            }
            for some in (scores, start or {})
        )
        tables += [split_table(mine, began, head)] if mine else []
    return tables


def split_table(
    scores: Mapping[str, float], start: Mapping[str, float] | None = None, head: str = "split"
) -> Table:
    """Rows are split and kind of label, columns the metrics.

    With the scores at the `start`, each row stands under that of the network before training.
    """
    from uncollapse._base.table import Table

    ends, begins = _by_group(scores), _by_group(start or {})
    metrics = list(dict.fromkeys(m for row in ends.values() for m in row))
    both = any(set(begins.get(group, ())) & set(row) for group, row in ends.items())
    titles = (_TITLES.get(m, m.replace("recall@", "R@").replace("tar@", "TAR@")) for m in metrics)
    table = Table([head, *["training"] * both, *titles], keys=1 + both)
    for group, row in ends.items():
        moments = {"before": begins.get(group, {}), "after": row} if both else {"": row}
        for name, found in moments.items():
            cells = (f"{100 * found[m]:.2f}" if m in found else "" for m in metrics)
            if any(m in found for m in metrics):
                table.add(visible(group), *[name] * both, *cells)
    return table


def _by_group(scores: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """By split and kind of label."""
    rows: dict[str, dict[str, float]] = {}
    for key, value in scores.items():
        group, _, metric = key.rpartition("/")
        rows.setdefault(group, {})[metric] = value
    return rows


def line_table(lines: Sequence[ScoreLine], level: float = 0.95, threshold: str = "") -> Table:
    """One row a figure, in per cent; with `threshold`, a column of that name for the notes."""
    from uncollapse._base.table import Table

    kinds = list(dict.fromkeys(line.by for line in lines))
    several = len(kinds) > 1
    heads = [*["by"] * several, "figure", "%", f"{level:.0%} interval"]
    heads += [threshold] if threshold else []
    table = Table([*heads, "over"], keys=1 + several)
    for kind in kinds:
        for line in (one for one in lines if one.by == kind):
            cells = [kind] * several + [line.title, _percent(line.value), _between(line)]
            cells += [line.note] if threshold else []
            table.add(*(visible(cell) for cell in [*cells, line.over]))
    return table


def score_pairs(
    scores: Mapping[str, float],
) -> tuple[dict[str, float], dict[str, tuple[list[ScoreLine], list[ScoreLine]]]]:
    """The plain scores of a run; and by split those that were re-ranked, after the same plain."""
    from uncollapse.training.evaluation import RERANKED

    plain = {key: value for key, value in scores.items() if RERANKED not in key}
    pairs: dict[str, tuple[list[ScoreLine], list[ScoreLine]]] = {}
    for key, value in scores.items():
        split, found, name = key.partition(f"/{RERANKED}")
        if found:
            title = name.replace("recall@", "R@")
            lines = pairs.setdefault(split, ([], []))
            for side, number in zip(lines, (plain.get(f"{split}/{name}"), value), strict=True):
                side.append(ScoreLine(name, title, number, ""))
    return plain, pairs


def pair_table(
    plain: Sequence[ScoreLine], other: Sequence[ScoreLine], level: float = 0.95
) -> Table:
    """The same figures in the plain and in the re-ranked order, side by side, in per cent."""
    from uncollapse._base.table import Table

    between = any(line.low is not None for line in plain)
    over = any(line.over for line in plain)
    heads = ["figure"]
    for head in ("plain", "re-ranked"):
        heads += [head, *[f"{level:.0%} interval"] * between]
    table = Table([*heads, *["over"] * over])
    for pair in zip(plain, other, strict=True):
        cells = [pair[0].title]
        for line in pair:
            cells += [_percent(line.value), *[_between(line)] * between]
        table.add(*(visible(cell) for cell in [*cells, *[pair[0].over] * over]))
    return table


def _percent(value: float | None) -> str:
    return "–" if value is None or value != value else f"{100 * value:.2f}"


def _between(line: ScoreLine) -> str:
    if line.low is None or line.high is None:
        return "–"
    return f"{100 * line.low:.2f} – {100 * line.high:.2f}"
