"""`uncollapse datasets`: what is found where; one of them in full, its copy counted."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from uncollapse._base.table import Cell, Table
from uncollapse.cli.printing import show, status

if TYPE_CHECKING:
    from uncollapse.data import Survey


def command(
    name: Annotated[str | None, typer.Argument(help="A dataset; without it, all of them.")] = None,
    data_root: Annotated[
        Path | None, typer.Option(help="Where to look instead of $UNCOLLAPSE_DATA.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 2 unless the copy is complete.")
    ] = False,
) -> None:
    """List the datasets, or show where to get one and count what your copy holds."""
    from uncollapse import data

    if name is None:
        show(survey_table(data.survey(data_root)))
        return
    with status(f"checking {name}"):
        copy = data.check(name, data_root)
    show(copy_lines(copy))
    if strict and not copy.complete:
        raise typer.Exit(2)


def survey_table(copies: Iterable[Survey]) -> RenderableType:
    """A table of the datasets: what is found where, beside the official counts.

    >>> from rich.console import Console
    >>> from uncollapse.data import survey
    >>> with (console := Console(width=120)).capture() as shown:
    ...     console.print(survey_table(survey()))
    >>> "cub200" in shown.get()
    True
    """
    table = Table(["name", "what", "found", "where"], title="Datasets")
    for copy in copies:
        lines = "\n".join(_count(copy, split) for split in copy.found)
        wrong = any(map(copy.official, copy.found))
        where = copy.origin or Cell("not found", style="dim")
        found = Cell(lines, style="red" if wrong else "")
        table.add(copy.info.name, copy.info.title, found, where)
    hint = "[dim]Set UNCOLLAPSE_DATA to a folder with one folder per dataset. More about one:[/dim]"
    return Group(table, f"{hint} uncollapse datasets NAME")


def copy_lines(copy: Survey) -> RenderableType:
    """Where to get a dataset, its licence and layout, and what was found of each split.

    >>> from rich.console import Console
    >>> from uncollapse.data import check
    >>> with (console := Console(width=120)).capture() as shown:
    ...     console.print(copy_lines(check("digits")))
    >>> "complete" in shown.get()
    True
    """
    info = copy.info
    lines = [f"[bold]{info.name}[/bold]  {escape(info.title)}"]
    lines += [f"  get it from  {escape(info.home)}", f"  licence      {escape(info.licence)}"]
    for split in info.splits:
        official = info.official.get(split)
        lines.append(f"  split        {split}" + (f": {official}" if official else ""))
    layout = Padding(Text(info.layout), (0, 0, 0, 4))
    found = [f"found in {escape(copy.origin)}"] if copy.origin is not None else []
    for split in copy.found:
        mark = "[red]✗[/red]" if copy.official(split) else "[green]✓[/green]"
        found.append(f"  {mark} {_count(copy, split)}")
    found += [f"  [red]✗[/red] {split}: {escape(why)}" for split, why in copy.missing.items()]
    found.append("[green]complete[/green]" if copy.complete else "[red]not complete[/red]")
    return Group(*lines, "  layout", layout, "", *found)


def _count(copy: Survey, split: str) -> str:
    official = copy.official(split)
    return f"{split}: {copy.found[split]}" + (f" (official: {official})" if official else "")
