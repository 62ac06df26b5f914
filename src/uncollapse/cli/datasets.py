"""`uncollapse datasets`: which are found where, or one in full with the counts of its copy."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from textwrap import indent
from typing import Annotated

import typer
from rich.markup import escape

import uncollapse as uc
from uncollapse._base.table import Cell, Table
from uncollapse.cli.printing import show, status


def command(
    name: Annotated[str | None, typer.Argument(help="A dataset; without it, all of them.")] = None,
    data_root: Annotated[Path | None, typer.Option(help="Instead of $UNCOLLAPSE_DATA.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 2 unless the copy is complete.")
    ] = False,
) -> None:
    """List the datasets, or show where to get one and count what your copy holds."""
    if name is None:
        show(survey_table(uc.data.survey(data_root)))
        return
    with status(f"checking {name}"):
        copy = uc.data.check(name, data_root)
    show(copy_lines(copy))
    if strict and not copy.complete:
        raise typer.Exit(2)


def survey_table(copies: Iterable[uc.data.Survey]) -> Table:
    """A table of the datasets: what is found where, beside the official counts.

    >>> from uncollapse.data import survey
    >>> "cub200" in survey_table(survey()).markdown()
    True
    """
    notes = (
        "Set UNCOLLAPSE_DATA to a folder with one folder per dataset.",
        "More about one: uncollapse datasets NAME",
    )
    table = Table(["name", "what", "found", "where"], title="Datasets", notes=notes)
    for copy in copies:
        lines = "\n".join(_count(copy, split) for split in copy.found)
        wrong = any(map(copy.official, copy.found))
        where = copy.origin or Cell("not found", style="dim")
        counts = Cell(lines, style="red" if wrong else "")
        table.add(copy.info.name, copy.info.title, counts, where)
    return table


def copy_lines(copy: uc.data.Survey) -> str:
    """Where to get a dataset, its licence and layout, and what was found of each split.

    >>> from uncollapse.data import check
    >>> "complete" in copy_lines(check("digits"))
    True
    """
    info = copy.info
    lines = [f"[bold]{info.name}[/bold]  {escape(info.title)}"]
    lines += [f"  get it from  {escape(info.home)}", f"  licence      {escape(info.licence)}"]
    for split in info.splits:
        official = info.official.get(split)
        lines.append(f"  split        {split}" + (f": {official}" if official else ""))
    lines += ["  layout", indent(escape(info.layout), "    "), ""]
    lines += [f"found in {escape(copy.origin)}"] if copy.origin is not None else []
    for split in copy.found:
        mark = "[red]✗[/red]" if copy.official(split) else "[green]✓[/green]"
        lines.append(f"  {mark} {_count(copy, split)}")
    lines += [f"  [red]✗[/red] {split}: {escape(why)}" for split, why in copy.missing.items()]
    lines.append("[green]complete[/green]" if copy.complete else "[red]not complete[/red]")
    return "\n".join(lines)


def _count(copy: uc.data.Survey, split: str) -> str:
    official = copy.official(split)
    return f"{split}: {copy.found[split]}" + (f" (official: {official})" if official else "")
