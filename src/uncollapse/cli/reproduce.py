"""`uncollapse reproduce`: the papers' figures and tables, each one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from uncollapse.cli.plain_lines import say

__all__ = ["command"]


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
    from rich.console import Console

    from uncollapse.cli.reproduce_tables import listing_notes, listing_table, show_page
    from uncollapse.papers import get_item

    console = Console()
    if listing or item is None:
        console.print(listing_table())
        console.print(f"\n{listing_notes()}", highlight=False)
        if item is None and not listing:
            console.print("\nGive one of these names:  uncollapse reproduce fig4")
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
        show_page(console, page)
    for path in made.files:
        say(console, f"wrote {path}")
