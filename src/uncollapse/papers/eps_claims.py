"""The EPS paper's theory as a table: what it says, what is true, and the computed evidence."""

from __future__ import annotations

import csv
from dataclasses import astuple
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from uncollapse.noise import ClaimCheck, check_claims_eps

__all__ = ["claims_eps"]

HEADER = ("where", "the paper says", "status", "what is true", "computed here")
_COLOURS = {"true": "green", "true if": "yellow", "false": "red", "misprint": "magenta"}


def claims_eps(out: Path, scale: str = "laptop", console: Console | None = None) -> list[Path]:
    """Print the truth table, save it as markdown and CSV, and return the files written.

    Every scale computes the same: it takes seconds.
    """
    rows = check_claims_eps()
    (console or Console()).print(_table(rows))
    out.mkdir(parents=True, exist_ok=True)
    markdown, comma = out / "claims-eps.md", out / "claims-eps.csv"
    lines = [HEADER, ("---",) * len(HEADER), *(astuple(row) for row in rows)]
    markdown.write_text("".join(f"| {' | '.join(line)} |\n" for line in lines), encoding="utf-8")
    with comma.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([HEADER, *(astuple(row) for row in rows)])
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
