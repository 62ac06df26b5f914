"""`uncollapse datasets`: what is found where; one of them in full, its copy checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["command"]


def command(
    name: Annotated[str | None, typer.Argument(help="A dataset; without it, all of them.")] = None,
    data_root: Annotated[
        Path | None, typer.Option(help="Where to look instead of $UNCOLLAPSE_DATA.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 2 unless the copy is complete.")
    ] = False,
) -> None:
    """List the datasets, or show where to get one and check your copy."""
    from rich.console import Console

    from uncollapse import data
    from uncollapse.cli.dataset_tables import copy_table, survey_table

    console = Console()
    if name is None:
        console.print(survey_table(data.survey(data_root)))
        return
    with console.status(f"checking {name}"):
        result = data.check(name, data_root, progress=False)
    console.print(copy_table(result))
    if strict and not result.ok:
        raise typer.Exit(2)
