"""`uncollapse reproduce`: the papers' figures and tables, each one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["command"]


def command(
    item: Annotated[
        str | None, typer.Argument(help="What to reproduce; --list shows the names.")
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="Show what can be reproduced.")] = False,
    out: Annotated[
        Path, typer.Option(help="Folder for the pictures and tables.", file_okay=False)
    ] = Path("out"),
    seed: Annotated[int, typer.Option(help="Random seed of the example.", min=0)] = 0,
) -> None:
    """Reproduce a figure, table or claim of the two papers."""
    from rich.console import Console

    from uncollapse.papers import get_item, listing_table

    console = Console()
    if listing or item is None:
        console.print(listing_table())
        if item is None and not listing:
            console.print("\nGive one of these names:  uncollapse reproduce fig4")
        return
    found = get_item(item)
    out.mkdir(parents=True, exist_ok=True)
    for path in found.run(out, seed, console):
        console.print(f"wrote {path}", soft_wrap=True, highlight=False)
