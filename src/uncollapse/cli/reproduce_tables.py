"""Pages and lists of the papers' items as tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table as Shown

if TYPE_CHECKING:
    from rich.console import Console

    from uncollapse.papers import Page, Table

__all__ = ["listing_notes", "listing_table", "show_page"]

# Columns of the listing; what stands in the first group is never folded.
_WHOLE, _FOLDED = ("name", "took"), "what it makes"
_COLUMNS = ("name", _FOLDED, "needs", "scale", "took", "data used", "real")
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

    >>> from uncollapse.papers import CATALOGUE
    >>> listing_table().row_count == len(CATALOGUE)
    True
    """
    from uncollapse.papers import CATALOGUE, SCALES, read_recorded

    recorded, wide = read_recorded(), width >= _WIDE
    rows = []
    for item in CATALOGUE.values():
        last = recorded.get(item.name)
        facts = ["–"] * 4
        if last is not None:
            facts = [last.scale, last.time, last.data or "none", last.real or "–"]
        times = [item.time_at(scale) or "–" for scale in SCALES] if wide else []
        rows.append([item.name, item.summary, item.needs, *facts, *times])
    table = Shown(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    least = [_least(name, [row[i] for row in rows]) for i, name in enumerate(_COLUMNS)]
    spare = max(0, width - sum(least) - len(least) + 1)
    for name, room in zip(_COLUMNS, least, strict=True):
        taken = None if wide else room + spare * (name == _FOLDED)
        table.add_column(name, width=taken, overflow="fold", style="bold" if name == "name" else "")
    for scale in SCALES if wide else ():
        table.add_column(f"about, {scale}")
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def _least(name: str, cells: Sequence[str]) -> int:
    """How wide a column must be so that no word in it is cut."""
    texts = [name, *cells]
    return max(len(word) for text in texts for word in ([text] if name in _WHOLE else text.split()))


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
