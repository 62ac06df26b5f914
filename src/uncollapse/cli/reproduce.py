"""`uncollapse reproduce`: the papers' figures and tables, each one command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import uncollapse as uc
from uncollapse._base.table import Cell, Table
from uncollapse.cli.printing import say, show

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
From holds to real: of the run in docs/results; see claims.md there for what holds and what not. \
took: training on two cores, one run after the other, or drawing; items that share runs each count \
them. real: the paper's own data; part: some was missing. Scales: smoke, laptop, paper."""


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
        int | None,
        typer.Option(help="Parallel trainings, by default one per core; 0: none.", min=0),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(help="ImageNet weights, where the paper starts from them.", exists=True),
    ] = None,
) -> None:
    """Reproduce a figure, table or claim of the two papers, next to the paper's numbers."""
    if listing or item is None:
        show(listing_table(), _NOTES)
        if item is None and not listing:
            show("\nGive one of these names:  uncollapse reproduce fig4")
        return
    made = uc.papers.get_item(item).run(
        out, seed, scale, seeds=seeds, data_root=data_root, processes=processes, weights=weights
    )
    for page in made.pages:
        show_page(Console(highlight=False), page)
    for path in made.files:
        say(f"wrote {path}")


def listing_table() -> Table:
    """All items: what they need, and how they were last recorded.

    >>> from uncollapse.papers import CATALOGUE
    >>> len(listing_table().rows) == len(CATALOGUE)
    True
    """
    recorded, scales = uc.papers.read_recorded(), uc.papers.SCALES
    heads = ["name", "what it makes", "needs", "holds", "scale", "took", "data used", "real"]
    table = Table([*heads, *(f"about, {scale}" for scale in scales)])
    for item in uc.papers.CATALOGUE.values():
        last, facts = recorded.get(item.name), [""] * 5
        if last is not None:
            facts = [last.holds, last.scale, last.time, last.data or "none", last.real]
        times = [item.time.get(scale, "–") for scale in scales]
        table.add(item.name, item.summary, item.needs, *(fact or "–" for fact in facts), *times)
    return table


def show_page(console: Console, page: uc.papers.ItemPage) -> None:
    """Print a page: its tables, how they were made, and the notes."""
    for number, table in enumerate(page.tables):
        if number:
            console.print()
        console.print(_coloured(table, page.title if number == 0 else ""))
        for note in table.notes:
            say(note, console=console)
    for name, value in page.about.items():
        say(f"{name}: {value}", console=console)
    for note in page.notes:
        say(note, console=console)


def _coloured(table: Table, title: str) -> Table:
    rows = [list(line) for line in table.lines]
    if table.verdict is not None:
        for row in rows:
            text = str(row[table.verdict].text)
            style = _COLOURS.get(text) or _COLOURS.get(text.split(" ")[0], "")
            row[table.verdict] = Cell(text, style=style)
    titles = "\n".join(text for text in (title, table.title) if text)
    keys = next((i for i, name in enumerate(table.head) if name and i > 0), 1)
    return replace(table, rows=rows, title=titles, notes=(), keys=keys)
