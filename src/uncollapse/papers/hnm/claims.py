"""The truth of HNM's claims, each recomputed on the example that shows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from uncollapse.geometry.claims import Claim, check_claims
from uncollapse.papers._csv import csv_text
from uncollapse.papers._item import Item, Request
from uncollapse.papers.hnm._examples import random_draws, worked_examples
from uncollapse.training.checkpoint import write_text

__all__ = ["CLAIMS", "Row", "truth_table"]

_STYLES = {"holds": "green", "violated": "red", "vacuous": "yellow", "undecided": "cyan"}
_HEADINGS = ("example", "α", "claim", "statement", "left", "right", "ratio", "verdict")
_LEGEND = (
    "A bracket [low, high] is certified: the value lies in it. The ratio is between the values "
    "found. holds / violated: decided by the brackets, or proved for every margin. vacuous: the "
    "statement says nothing here. undecided: the brackets overlap. Thm 3.2, upper is tried "
    "with c_n = 1, which the literature leaves open; Cor. 3.4, upper with the c = 2 of (17)."
)


@dataclass(frozen=True)
class Row:
    """One claim on one example."""

    example: str
    alpha: float
    claim: Claim

    @property
    def cells(self) -> tuple[str, ...]:
        """As text, in the order of the headings."""
        claim = self.claim
        sides = (_text(*claim.left), _text(*claim.right))
        start = (self.example, f"{self.alpha:g}", claim.name, claim.statement)
        return (*start, *sides, f"{claim.ratio:.3f}", claim.status)


def truth_table(seed: int = 0) -> Iterator[Row]:
    """Every claim that an example has something to say about, example by example.

    >>> first = next(truth_table())
    >>> first.example, first.claim.name, first.claim.status
    ('4 classes of one point, all at 0 in R¹', 'Thm 3.3, upper', 'violated')
    """
    for example in worked_examples(seed):
        claims = check_claims(
            example.x,
            example.labels,
            example.alpha,
            end=example.end,
            starts=example.starts,
            seed=seed,
        )
        by_name = {claim.name: claim for claim in claims}
        for name in example.shows:
            yield Row(example.title, example.alpha, by_name[name])


def _make(request: Request) -> list[Path]:
    with request.console.status("recomputing the claims"):
        rows = list(truth_table(request.seed))
        notes = [*random_draws(request.seed), _LEGEND]
    _tell(request.console, rows, notes)
    texts = {"md": _markdown(rows, notes), "csv": _csv(rows)}
    made = {request.out / f"claims-hnm.{kind}": text for kind, text in texts.items()}
    for path, text in made.items():
        write_text(path, text)
    return list(made)


def _tell(console: Console, rows: list[Row], notes: list[str]) -> None:
    """One small table an example, so that it can be read in a narrow terminal."""
    for title, group in groupby(rows, key=lambda row: f"{row.example}, α = {row.alpha:g}"):
        table = Table(title=title, title_justify="left", title_style="bold", box=None)
        for heading in ("verdict", "claim"):
            table.add_column(heading, no_wrap=True)
        table.add_column("statement")
        for heading in ("left", "right", "ratio"):
            table.add_column(heading, justify="right", no_wrap=True)
        for row in group:
            style = _STYLES[row.claim.status]
            cells = [escape(cell) for cell in row.cells[2:-1]]
            table.add_row(f"[{style}]{row.claim.status}[/{style}]", *cells)
        console.print(table)
        console.print()
    for note in notes:
        console.print(note, markup=False, highlight=False)


def _markdown(rows: list[Row], notes: list[str]) -> str:
    lines = ["# Claims of the hard-negative-mining paper, recomputed", ""]
    lines += ["| " + " | ".join(_HEADINGS) + " |", "|---" * len(_HEADINGS) + "|"]
    lines += ["| " + " | ".join(c.replace("|", "\\|") for c in row.cells) + " |" for row in rows]
    return "\n".join([*lines, "", "\n\n".join(notes), ""])


def _csv(rows: list[Row]) -> str:
    """Full precision, each side as the two ends of its bracket."""
    sides = ("left_low", "left_high", "right_low", "right_high")
    lines: list[list[object]] = [[*_HEADINGS[:4], *sides, "ratio", "verdict", "sentence"]]
    for row in rows:
        claim = row.claim
        numbers = [*claim.left, *claim.right, claim.ratio]
        lines.append([*row.cells[:4], *numbers, claim.status, claim.sentence])
    return csv_text(lines)


def _text(low: float, high: float) -> str:
    known = low == high or high - low <= 1e-4 * abs(high)
    return f"{high:.4g}" if known else f"[{low:.3g}, {high:.3g}]"


CLAIMS = Item(
    name="claims-hnm",
    summary="truth table of HNM's claims on examples and counterexamples, recomputed",
    needs="nothing more",
    time="half a minute",
    make=_make,
)
