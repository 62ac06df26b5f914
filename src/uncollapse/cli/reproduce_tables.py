"""Pages and lists of the papers' items as tables for the terminal."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from uncollapse._base.table import Cell, Table
from uncollapse.cli.plain_lines import say

if TYPE_CHECKING:
    from rich.console import Console

    from uncollapse.papers import Page

__all__ = ["listing_notes", "listing_table", "show_page"]

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


def listing_table() -> Table:
    """All items: what they need, and how they were last recorded.

    >>> from uncollapse.papers import CATALOGUE
    >>> len(listing_table().rows) == len(CATALOGUE)
    True
    """
    from uncollapse.papers import CATALOGUE, SCALES, read_recorded

    recorded = read_recorded()
    heads = ["name", "what it makes", "needs", "scale", "took", "data used", "real"]
    table = Table([*heads, *(f"about, {scale}" for scale in SCALES)])
    for item in CATALOGUE.values():
        last = recorded.get(item.name)
        facts = ["–"] * 4
        if last is not None:
            facts = [last.scale, last.time, last.data or "none", last.real or "–"]
        times = [item.time_at(scale) or "–" for scale in SCALES]
        table.add(Cell(item.name, style="bold"), item.summary, item.needs, *facts, *times)
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
        console.print(_coloured(table, page.title if number == 0 else ""))
        for note in table.notes:
            say(console, note)
    for name, value in page.about.items():
        say(console, f"{name}: {value}")
    for note in page.notes:
        say(console, note)


def _coloured(table: Table, title: str) -> Table:
    rows = [list(line) for line in table.lines]
    if table.verdict is not None:
        for row in rows:
            text = str(row[table.verdict].text)
            row[table.verdict] = Cell(text, style=_colour(text))
    titles = "\n".join(text for text in (title, table.title) if text)
    keys = next((i for i, name in enumerate(table.head) if name and i > 0), 1)
    return replace(table, rows=rows, title=titles, notes=(), keys=keys)


def _colour(text: str) -> str:
    return _COLOURS.get(text) or _COLOURS.get(text.split(" ")[0]) or ""
