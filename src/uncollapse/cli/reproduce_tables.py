"""Pages and lists of the papers' items as tables for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table as Shown

if TYPE_CHECKING:
    from rich.console import Console

    from uncollapse.papers import Page, Table

__all__ = ["listing_table", "show_page"]

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


def listing_table() -> Shown:
    """All items, what they need and how long they take at each scale.

    >>> from uncollapse.papers import ITEMS
    >>> listing_table().row_count == len(ITEMS)
    True
    """
    from uncollapse.papers import ITEMS, SCALES

    table = Shown(box=None, pad_edge=False)
    for heading in ("name", "what it makes", "needs", *SCALES):
        least = 18 if heading == "what it makes" else None  # also where a terminal is narrow
        table.add_column(heading, no_wrap=heading == "name", min_width=least)
    for item in ITEMS.values():
        times = (item.time_at(scale) or "-" for scale in SCALES)
        table.add_row(f"[bold]{item.name}[/bold]", item.summary, item.needs, *times)
    return table


def show_page(console: Console, page: Page) -> None:
    """Print a page: its tables, how they were made, and the notes."""
    for number, table in enumerate(page.tables):
        console.print(_terminal_table(table, page.title if number == 0 else ""))
    for name, value in page.about.items():
        console.print(f"{name}: {value}", markup=False, highlight=False)
    for note in page.notes:
        console.print(note, markup=False, highlight=False)


def _terminal_table(table: Table, title: str) -> Shown:
    titles = [text for text in (title, table.title) if text]
    shown = Shown(title=escape("\n".join(titles)) or None)
    # Long sentences need lines between rows, and room to wrap.
    shown.show_lines = any(len(cell) > 120 for row in table.rows for cell in row)
    for place, heading in enumerate(table.heading):
        shown.add_column(escape(heading), no_wrap=place == table.verdict, overflow="fold")
    for number, row in enumerate(table.rows):
        cells = [escape(cell) for cell in row]
        if number in table.strong:
            cells[1:] = [f"[bold]{cell}[/bold]" for cell in cells[1:]]
        if table.verdict is not None:
            cells[table.verdict] = _coloured(row[table.verdict])
        shown.add_row(*cells)
    return shown


def _coloured(text: str) -> str:
    colour = _COLOURS.get(text) or _COLOURS.get(text.split(" ")[0])
    return f"[{colour}]{escape(text)}[/{colour}]" if colour else escape(text)
