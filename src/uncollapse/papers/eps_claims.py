"""The EPS paper's theory as a table: what it says, what is true, and the computed evidence."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from uncollapse.noise import ClaimCheck, check_claims_eps
from uncollapse.papers._csv import csv_text
from uncollapse.papers._item import Item, Request
from uncollapse.training.checkpoint import write_text

__all__ = ["CLAIMS_EPS"]

HEADER = ("where", "the paper says", "status", "what is true", "computed here")
_COLOURS = {"true": "green", "true if": "yellow", "false": "red", "misprint": "magenta"}


def _make(request: Request) -> list[Path]:
    rows = check_claims_eps()
    request.console.print(_table(rows))
    markdown, comma = request.out / "claims-eps.md", request.out / "claims-eps.csv"
    cells = [astuple(row) for row in rows]
    lines = [HEADER, ("---",) * len(HEADER), *cells]
    write_text(markdown, "".join(f"| {' | '.join(line)} |\n" for line in lines))
    write_text(comma, csv_text([HEADER, *cells]))
    return [markdown, comma]


def _table(rows: list[ClaimCheck]) -> Table:
    table = Table(title="EPS §3, §4 and appendices A and B", show_lines=True)
    for name in HEADER:
        table.add_column(name, ratio={"status": 2, "where": 3}.get(name, 5), overflow="fold")
    for row in rows:
        colour = _COLOURS[row.status]
        status = f"[{colour}]{row.status}[/{colour}]"
        where, says, truth, evidence = map(
            escape, (row.where, row.statement, row.truth, row.evidence)
        )
        table.add_row(where, says, status, truth, evidence)
    return table


CLAIMS_EPS = Item(
    name="claims-eps",
    summary="EPS §3, §4, appendices A and B: what is true, with the conditions and the numbers",
    needs="nothing",
    time="seconds",
    make=_make,
)
