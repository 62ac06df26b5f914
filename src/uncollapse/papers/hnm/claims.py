"""The truth of HNM's claims, each recomputed on the example that shows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from uncollapse._base.files import write_csv, write_text
from uncollapse.geometry.claims import Claim, check_claims
from uncollapse.papers._item import Item, Made, Request
from uncollapse.papers._page import Page, Table
from uncollapse.papers.hnm._examples import random_draws, worked_examples

__all__ = ["CLAIMS_HNM", "Row", "truth_table"]

_TITLE = "Claims of the hard-negative-mining paper, recomputed"
_HEADINGS = ("example", "α", "claim", "statement", "left", "right", "ratio", "verdict")
_SIDES = ("left_low", "left_high", "right_low", "right_high")
_CSV_HEADER = (*_HEADINGS[:4], *_SIDES, "ratio", "verdict", "sentence")
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


def _make(request: Request) -> Made:
    rows = list(truth_table(request.seed))
    notes = [*random_draws(request.seed), _LEGEND]
    page = Page(_TITLE, [Table(_HEADINGS, [row.cells for row in rows])], notes=notes)
    markdown, comma = request.out / "claims-hnm.md", request.out / "claims-hnm.csv"
    write_text(markdown, page.markdown())
    write_csv(comma, _CSV_HEADER, map(_full, rows))
    return Made([markdown, comma], [replace(page, tables=_by_example(rows))])


def _by_example(rows: list[Row]) -> list[Table]:
    """One small table per example, so that it can be read in a narrow terminal."""
    heading = ("verdict", *_HEADINGS[2:-1])
    tables = []
    for title, group in groupby(rows, key=lambda row: f"{row.example}, α = {row.alpha:g}"):
        cells = [(row.claim.status, *row.cells[2:-1]) for row in group]
        tables.append(Table(heading, cells, title, verdict=0))
    return tables


def _full(row: Row) -> list[object]:
    """Full precision, each side as the two ends of its bracket."""
    claim = row.claim
    numbers = [*claim.left, *claim.right, claim.ratio]
    return [*row.cells[:4], *numbers, claim.status, claim.sentence]


def _text(low: float, high: float) -> str:
    known = low == high or high - low <= 1e-4 * abs(high)
    return f"{high:.4g}" if known else f"[{low:.3g}, {high:.3g}]"


CLAIMS_HNM = Item.of("claims-hnm", _make)
