"""Pages and lists of the papers' items as tables for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from uncollapse._base.table import Column, FittedTable
from uncollapse.cli.plain_lines import say

if TYPE_CHECKING:
    from rich.console import Console

    from uncollapse.papers import Page, Table

__all__ = ["listing_notes", "listing_table", "show_page"]

_SENTENCE, _SHORT = 120, 20  # characters of cells that want lines between rows; that never fold

_COLOURS = {
    "yes": "green",
    "NO": "bold red",
    "partly": "yellow",
    "holds": "green",
    "violated": "red",
    "vacuous": "yellow",
    "undecided": "cyan",
    "true": "green",
    "true if": "yellow",
    "false": "red",
    "misprint": "magenta",
}


def listing_table() -> FittedTable:
    """All items: what they need, and how they were last recorded.

    A narrow terminal has the sentences under the name; one with room for it also says how long
    items take at each scale, roughly.

    >>> from uncollapse.papers import CATALOGUE
    >>> len(listing_table().rows) == len(CATALOGUE)
    True
    """
    from uncollapse.papers import CATALOGUE, SCALES, read_recorded

    recorded = read_recorded()
    wide = {scale: Column(f"about, {scale}", spare=1) for scale in SCALES}
    columns = [
        Column("name", style="bold"),
        Column("what it makes", folds=True, below=True, least=30),
        Column("needs", folds=True, below=True, lead="needs ", least=16),
        Column("scale"),
        Column("took"),
        Column("data used", folds=True, least=14),
        Column("real"),
        *wide.values(),
    ]
    table = FittedTable(columns, boxed=False, tells=False)
    for item in CATALOGUE.values():
        last = recorded.get(item.name)
        facts = ["–"] * 4
        if last is not None:
            facts = [last.scale, last.time, last.data or "none", last.real or "–"]
        times = [item.time_at(scale) or "–" for scale in wide]
        table.add(item.name, item.summary, item.needs, *facts, *times)
    return table


def listing_notes() -> str:
    """What the columns of the listing say."""
    return (
        "The last four columns are of the run that stands in docs/results. took: training on two "
        "cores, one run after the other, or drawing; items that share runs each count them. real: "
        "whether the data was the paper's own; part where some of it was missing. Scales: smoke, "
        "laptop, paper."
    )


def show_page(console: Console, page: Page) -> None:
    """Print a page: its tables, how they were made, and the notes."""
    for number, table in enumerate(page.tables):
        if number:
            console.print()
        console.print(_terminal_table(table, page.title if number == 0 else ""))
        for note in table.notes:
            say(console, note)
    for name, value in page.about.items():
        say(console, f"{name}: {value}")
    for note in page.notes:
        say(console, note)


def _terminal_table(table: Table, title: str) -> FittedTable:
    titles = "\n".join(text for text in (title, table.title) if text)
    # Long sentences need lines between rows, and room to wrap.
    lines = any(len(cell) > _SENTENCE for row in table.rows for cell in row)
    shown = FittedTable([_column(table, i) for i in range(len(table.heading))], [], titles)
    shown.lines = lines
    for number, row in enumerate(table.rows):
        cells = [
            Text(cell, style="bold" * (number in table.strong and i > 0))
            for i, cell in enumerate(row)
        ]
        if table.verdict is not None:
            cells[table.verdict].style = _colour(row[table.verdict])
        shown.add(*cells)
    return shown


def _column(table: Table, i: int) -> Column:
    """Sentences fold, and so do headings; numbers and verdicts stay whole."""
    cells = [row[i] for row in table.rows]
    widest = max(map(len, cells), default=0)
    whole = i == table.verdict or widest <= _SHORT
    key = i == 0 or not table.heading[i]
    over = i == 0 and not whole and len(table.heading) > 1
    return Column(table.heading[i], folds=not whole, below=over, least=20 * (not whole), key=key)


def _colour(text: str) -> str:
    return _COLOURS.get(text) or _COLOURS.get(text.split(" ")[0]) or ""
