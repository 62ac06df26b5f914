"""The EPS paper's theory as a table: what it says, what is true, and the computed evidence."""

from __future__ import annotations

from dataclasses import astuple

from uncollapse._base.files import write_csv, write_text
from uncollapse.noise import check_claims_eps
from uncollapse.papers._item import Item, Made, Request
from uncollapse.papers._page import Page, Table

__all__ = ["CLAIMS_EPS"]

_HEADING = ("where", "the paper says", "status", "what is true", "computed here")


def _make(request: Request) -> Made:
    rows = [astuple(row) for row in check_claims_eps()]
    table = Table(_HEADING, rows, verdict=2)
    markdown, comma = request.out / "claims-eps.md", request.out / "claims-eps.csv"
    write_text(markdown, Page("", [table]).markdown())
    write_csv(comma, _HEADING, rows)
    return Made([markdown, comma], [Page("EPS §3, §4 and appendices A and B", [table])])


CLAIMS_EPS = Item.of("claims-eps", _make)
