"""Tables for terminals of any width: nothing is cut while a column can fold, move or be left out.

The only place that draws a table on a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from uncollapse._base.table_layout import INDENT, Column, Part, lay_out
from uncollapse._base.word_wrap import folded

__all__ = ["Column", "FittedTable"]

_INDENT = " " * INDENT


@dataclass
class FittedTable:
    """Rows of text under columns; printed by rich, it takes the width there is.

    Cells are strings, shown as they are, or `Text` of one style. `lines` draws a line between
    rows; `boxed=False` draws none at all. With `tells`, a last line names columns left out.

    >>> table = FittedTable([Column("run"), Column("loss", right=True)], [["a", "0.5"]])
    >>> Console(width=40).print(FittedTable(table.columns, table.rows, boxed=False))
    run  loss
    a     0.5
    """

    columns: Sequence[Column]
    rows: list[Sequence[str | Text]] = field(default_factory=list)
    title: str = ""
    boxed: bool = True
    lines: bool = False
    header: bool = True
    tells: bool = True
    ends: set[int] = field(default_factory=set)

    def add(self, *cells: str | Text) -> None:
        """A row at the end."""
        self.rows.append(cells)

    def end_section(self) -> None:
        """A line under the last row."""
        self.ends.add(len(self.rows))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Drawn for the width of `options`."""
        width = options.max_width
        rows = [[cell if isinstance(cell, Text) else Text(cell) for cell in r] for r in self.rows]
        plain = [[cell.plain for cell in row] for row in rows]
        found = lay_out(self.columns, plain, width, boxed=self.boxed)
        if self.title:
            yield Text("\n".join(folded(self.title, width)), style="italic")
        for number, part in enumerate(found.parts):
            if number:
                yield Text("")
            if part.boxed:
                yield self._box(part, rows)
            else:
                yield from self._plain(part, rows, found.below, width)
        if found.left_out and self.tells:
            names = ", ".join(self.columns[i].name for i in found.left_out)
            yield Text(f"no room at {width} columns for: {names}", style="dim")

    def _box(self, part: Part, rows: Sequence[Sequence[Text]]) -> Table:
        table = Table(show_lines=self.lines, show_header=self.header)
        for i, wide in zip(part.columns, part.widths, strict=True):
            one = self.columns[i]
            table.add_column(
                Text("\n".join(folded(one.name, wide))),
                justify="right" if one.right else "left",
                width=wide,
                no_wrap=True,
                style=one.style,
            )
        for number, row in enumerate(rows, 1):
            cells = (_fold(row[i], w) for i, w in zip(part.columns, part.widths, strict=True))
            table.add_row(*cells, end_section=number in self.ends)
        return table

    def _plain(
        self, part: Part, rows: Sequence[Sequence[Text]], below: Sequence[int], width: int
    ) -> Iterator[Text]:
        over = below[:1] == (0,)  # a first column stands over its row
        if self.header:
            heads = [Text(self.columns[i].name, style="bold") for i in part.columns]
            yield from self._line(part, heads, "", over)
        for number, row in enumerate(rows, 1):
            if over:
                yield Text("\n".join(folded(row[0].plain, width)), style=row[0].style)
            yield from self._line(part, [row[i] for i in part.columns], None, over)
            for i in below[over:]:
                text = self.columns[i].lead + row[i].plain if row[i].plain else ""
                for line in folded(text, width - INDENT):
                    if line:
                        yield Text(_INDENT + line, style=row[i].style)
            if number < len(rows) and (self.lines or number in self.ends):
                yield Text("")

    def _line(
        self, part: Part, cells: Sequence[Text], style: str | None, inset: bool
    ) -> Iterator[Text]:
        """The cells of a row beside each other, on as many lines as the longest needs."""
        lines = [folded(cell.plain, wide) for cell, wide in zip(cells, part.widths, strict=True)]
        for n in range(max(map(len, lines))):
            whole = Text(_INDENT * inset)
            for i, wide, cell, mine in zip(part.columns, part.widths, cells, lines, strict=True):
                text = mine[n] if n < len(mine) else ""
                pad = " " * (wide - cell_len(text))
                right = self.columns[i].right
                whole.append(pad * right)
                whole.append(text, cell.style or (self.columns[i].style if style is None else ""))
                whole.append(pad * (not right) + " " * part.gap)
            whole.rstrip()
            yield whole


def _fold(cell: Text, room: int) -> Text:
    return Text("\n".join(folded(cell.plain, room)), style=cell.style)
