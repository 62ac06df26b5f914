"""`uncollapse reproduce`: the papers' figures and tables, each one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from uncollapse._base.table import Column, FittedTable
from uncollapse.cli.printing import say, show

if TYPE_CHECKING:
    from uncollapse.papers import Page, Table

__all__ = ["command", "listing_table", "show_page"]

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
_NOTES = """
The last four columns are of the run that stands in docs/results. took: training on two cores, one \
run after the other, or drawing; items that share runs each count them. real: whether the data was \
the paper's own; part where some of it was missing. Scales: smoke, laptop, paper."""


def command(
    item: Annotated[
        str | None, typer.Argument(help="What to reproduce; --list shows the names.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="Show what can be reproduced.")] = False,
    scale: Annotated[
        str | None,
        typer.Option(help="smoke (seconds), laptop (real data) or paper (the exact protocol)."),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for the pictures, tables and runs.", file_okay=False)
    ] = Path("out"),
    seed: Annotated[int, typer.Option(help="The first random seed.", min=0)] = 0,
    seeds: Annotated[
        int | None, typer.Option(help="How many seeds; each scale has its own number.", min=1)
    ] = None,
    data_root: Annotated[
        Path | None,
        typer.Option(help="Folder of the datasets; UNCOLLAPSE_DATA by default.", exists=True),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(help="Parallel trainings; one per core by default.", min=1)
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(help="ImageNet weights, where the paper starts from them.", exists=True),
    ] = None,
) -> None:
    """Reproduce a figure, table or claim of the two papers, next to the paper's numbers."""
    from uncollapse.papers import get_item

    if listing or item is None:
        show(listing_table(), _NOTES)
        if item is None and not listing:
            show("\nGive one of these names:  uncollapse reproduce fig4")
        return
    made = get_item(item).run(
        out,
        seed,
        scale,
        seeds=seeds,
        data_root=data_root,
        processes=processes,
        weights=weights,
    )
    for page in made.pages:
        show_page(Console(highlight=False), page)
    for path in made.files:
        say(f"wrote {path}")


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


def show_page(console: Console, page: Page) -> None:
    """Print a page: its tables, how they were made, and the notes."""
    for number, table in enumerate(page.tables):
        if number:
            console.print()
        console.print(_terminal_table(table, page.title if number == 0 else ""))
        for note in table.notes:
            say(note, console=console)
    for name, value in page.about.items():
        say(f"{name}: {value}", console=console)
    for note in page.notes:
        say(note, console=console)


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
