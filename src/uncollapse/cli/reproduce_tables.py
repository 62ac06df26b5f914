"""Pages and lists of the papers' items as tables for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table as Shown

if TYPE_CHECKING:
    from rich.console import Console

    from uncollapse.papers import Page, Table

__all__ = ["listing_notes", "listing_table", "show_page"]

# Columns of the listing. "what it makes" takes what the others leave of a narrow terminal; each is
# as wide as the longest word in it.
_COLUMNS = {"name": 10, "what it makes": 17, "needs": 15, "scale": 6, "took": 6}
_COLUMNS |= {"data used": 12, "real": 4}
_WIDE = 130

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


def listing_table(width: int = 80) -> Shown:
    """All items: what they need, and how they were last recorded.

    Where the terminal is wide enough, also how long they take at each scale, roughly.

    >>> from uncollapse.papers import ITEMS
    >>> listing_table().row_count == len(ITEMS)
    True
    """
    from uncollapse.papers import ITEMS, SCALES, read_recorded

    recorded, wide = read_recorded(), width >= _WIDE
    table = Shown(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    spare = max(0, width - sum(_COLUMNS.values()) - len(_COLUMNS) + 1)
    for heading, least in _COLUMNS.items():
        taken = least + spare * (heading == "what it makes")
        table.add_column(heading, width=None if wide else taken, overflow="fold")
    for scale in SCALES if wide else ():
        table.add_column(f"about, {scale}")
    for item in ITEMS.values():
        last = recorded.get(item.name)
        facts = ["–"] * 4
        if last is not None:
            facts = [last.scale, last.time, last.data or "none", last.real or "–"]
        times = (item.time_at(scale) or "–" for scale in SCALES) if wide else ()
        name = f"[bold]{item.name}[/bold]"
        table.add_row(name, item.summary, item.needs, *map(escape, facts), *times)
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
        console.print(_terminal_table(table, page.title if number == 0 else ""))
        for note in table.notes:
            console.print(note, markup=False, highlight=False)
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
