"""A paper's numbers beside ours: scores over seeds, claims, and whether the direction is the same.

Printed, and saved as Markdown and CSV with what is needed to make them again.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from uncollapse.metrics import over_seeds
from uncollapse.papers._csv import csv_text
from uncollapse.papers._draw import save
from uncollapse.papers._item import Request
from uncollapse.training.checkpoint import write_text

__all__ = ["Beside", "Claim", "Score", "about", "publish", "spread"]

_COLOURS = {"yes": "green", "NO": "bold red", "partly": "yellow"}
Format = Callable[[str], str]


@dataclass(frozen=True)
class Score:
    """One number of a paper (None: it has none) and ours, a number a seed.

    `than` names the method of the same metric that the paper compares it with; the direction is
    the sign of the difference, seed by seed.
    """

    method: str
    metric: str
    paper: float | None
    ours: Sequence[float]
    than: str | None = None


@dataclass(frozen=True)
class Claim:
    """Something a paper says that is no score, what is so here, and whether that agrees."""

    what: str
    paper: str
    ours: str
    holds: bool | None


@dataclass(frozen=True)
class Beside:
    """Scores and claims under a title; `about` says how they were made, `notes` what differs.

    `picture` is the name of a file beside the page, shown on it.

    >>> table = Beside("T", [Score("a", "R@1", 40.0, [39.0, 41.0]),
    ...                      Score("b", "R@1", 60.0, [50.0, 52.0], than="a")])
    >>> table.direction(table.scores[1])
    'yes (2 of 2 seeds)'
    """

    title: str
    scores: Sequence[Score] = ()
    claims: Sequence[Claim] = ()
    about: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    picture: str = ""
    decimals: int = 1

    def direction(self, score: Score) -> str:
        """`yes`, `NO`, or `partly` (the mean agrees, not every seed); empty if nothing to compare.

        Where the paper has no number for one of the two, its claim is taken to be an improvement.
        """
        other = self._other(score)
        if other is None:
            return ""
        gaps = [mine - theirs for mine, theirs in zip(score.ours, other.ours, strict=False)]
        if not gaps or any(math.isnan(gap) for gap in gaps):
            return ""
        known = score.paper is not None and other.paper is not None
        sign = -1.0 if known and score.paper < other.paper else 1.0  # type: ignore[operator]
        agree = sum(sign * gap > 0 for gap in gaps)
        mean = sign * sum(gaps) > 0
        word = "NO" if not mean else "yes" if agree == len(gaps) else "partly"
        return f"{word} ({agree} of {len(gaps)} seed{'s' * (len(gaps) != 1)})"

    def render(self) -> RenderableType:
        """For the terminal."""
        parts: list[RenderableType] = []
        for heading, rows in self._tables(escape, "[bold]{}[/bold]"):
            table = Table(*map(escape, heading), title=escape(self.title) if not parts else None)
            for row in rows:
                table.add_row(*row[:-1], _coloured(row[-1]))
            parts.append(table)
        parts += [escape(f"{name}: {value}") for name, value in self.about.items()]
        return Group(*parts, *(escape(f"Note: {note}") for note in self.notes))

    def markdown(self) -> str:
        """The page."""
        lines = [f"# {self.title}", ""]
        lines += [f"![{self.title}]({self.picture})", ""] if self.picture else []
        lines += [f"- {name}: {value}" for name, value in self.about.items()]
        for heading, rows in self._tables(lambda text: text.replace("|", "\\|"), "**{}**"):
            lines += ["", _row(heading), _row(["---"] * len(heading)), *map(_row, rows)]
        for note in self.notes:
            lines += ["", note]
        return "\n".join(lines) + "\n"

    def save(self, folder: Path, name: str) -> list[Path]:
        """`name.md` and `name.csv`."""
        folder.mkdir(parents=True, exist_ok=True)
        page, comma = folder / f"{name}.md", folder / f"{name}.csv"
        write_text(page, self.markdown())
        write_text(comma, self.csv())
        return [page, comma]

    def csv(self) -> str:
        """Every number of every seed."""
        rows: list[list[object]] = [
            ["what", "metric", "paper", "ours", "std", "reproduced", "by seed"]
        ]
        for score in self.scores:
            mean, std = spread(score.ours)
            paper = "" if score.paper is None else score.paper
            each = " ".join(f"{value:.4f}" for value in score.ours)
            rounded = [f"{mean:.4f}", "" if math.isnan(std) else f"{std:.4f}"]
            direction = self.direction(score)
            rows.append([score.method, score.metric, paper, *rounded, direction, each])
        for claim in self.claims:
            rows.append([claim.what, "", claim.paper, claim.ours, "", _held(claim), ""])
        return csv_text(rows)

    def _other(self, score: Score) -> Score | None:
        same = (s for s in self.scores if (s.method, s.metric) == (score.than, score.metric))
        return next(same, None)

    def _tables(self, plain: Format, bold: str) -> list[tuple[list[str], list[list[str]]]]:
        """Heading and rows of each table that has any."""
        tables = []
        if self.scores:
            tables.append(self._grid(plain, bold))
        compared = [s for s in self.scores if self.direction(s)]
        if compared:
            rows = []
            for score in compared:
                other = self._other(score)
                paper = _against(score.paper, other.paper if other else None)
                ours = _against(spread(score.ours)[0], spread(other.ours)[0] if other else None)
                what = plain(f"{score.method} over {score.than}, {score.metric}")
                rows.append([what, paper, ours, self.direction(score)])
            tables.append((["what", "paper", "ours", "direction reproduced?"], rows))
        if self.claims:
            rows = [[plain(c.what), plain(c.paper), plain(c.ours), _held(c)] for c in self.claims]
            tables.append((["what", "paper", "ours", "reproduced?"], rows))
        return tables

    def _grid(self, plain: Format, bold: str) -> tuple[list[str], list[list[str]]]:
        """The paper's own form: a row a method, a column a metric; ours under the paper's."""
        metrics = list(dict.fromkeys(score.metric for score in self.scores))
        by = {(score.method, score.metric): score for score in self.scores}
        rows = []
        for method in dict.fromkeys(score.method for score in self.scores):
            mine = [by.get((method, metric)) for metric in metrics]
            if any(score and score.paper is not None for score in mine):
                theirs = ["" if s is None or s.paper is None else f"{s.paper:g}" for s in mine]
                rows.append([plain(method), "paper", *theirs])
            ours = ["" if s is None else bold.format(_mean(s.ours, self.decimals)) for s in mine]
            rows.append([plain(method), bold.format("ours"), *ours])
        return ["method", "", *map(plain, metrics)], rows


def publish(
    request: Request, item: str, table: Beside, *, figure: Any = None, file: str = ""
) -> list[Path]:
    """Print a table of an item and save it as `file` (else the item's name), with its picture."""
    request.console.print(table.render())
    folder, file = request.folder(item), file or item
    return table.save(folder, file) + ([] if figure is None else save(figure, folder, file))


def about(
    request: Request, name: str, *, seeds: Sequence[int], seconds: float, data: str, network: str
) -> dict[str, str]:
    """The lines that say how a table was made."""
    return {
        "command": f"`{request.command(name)}`",
        "seeds": ", ".join(map(str, seeds)),
        "data": data,
        "network and training": network,
        "time": f"{_duration(seconds)} of training, one run after the other (wall clock)",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation over seeds; NaN where there are too few for it.

    >>> spread([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    if len(values) < 2:
        return (float(values[0]) if values else math.nan), math.nan
    found = over_seeds(list(values))
    return found.mean, found.std


def _mean(values: Sequence[float], decimals: int) -> str:
    mean, std = (f"{value:.{decimals}f}" for value in spread(values))
    return mean if std == "nan" else f"{mean} ± {std}"


def _against(mine: float | None, other: float | None) -> str:
    if mine is None or other is None:
        return "-"
    return f"{mine:.1f} to {other:.1f} ({mine - other:+.1f})"


def _held(claim: Claim) -> str:
    return "not judged" if claim.holds is None else "yes" if claim.holds else "NO"


def _coloured(text: str) -> str:
    colour = _COLOURS.get(text.split(" ")[0])
    return f"[{colour}]{text}[/{colour}]" if colour else text


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
