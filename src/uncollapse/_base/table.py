"""Text folded between words, for terminals: a word is cut only where it is wider than the room."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

__all__ = [
    "INDENT",
    "Column",
    "FittedTable",
    "Layout",
    "Part",
    "folded",
    "lay_out",
    "longest_piece",
    "wrapped_for",
]


# Text folded between words, for terminals: a word is cut only where it is wider than the room.

# Where a path, a list or a name may be broken if it must be: after these.
_JOINT = re.compile(r"(?<=[/\\_,;=:|])(?=.)|(?<=[^\W\d]-)(?=\w)")


def folded(text: str, room: int) -> list[str]:
    """Lines of at most `room` columns; line breaks in the text stay.

    A word that is too wide is broken after a slash, an underscore or the like; where that does not
    do, anywhere.

    >>> folded("one two three", 8), folded("runs/long-name/report.html", 12)
    (['one two', 'three'], ['runs/long-', 'name/', 'report.html'])
    """
    room = max(1, room)
    lines: list[str] = []
    for paragraph in text.split("\n"):
        line = ""
        for word in paragraph.split(" "):
            glue = " " if line else ""
            for piece in _pieces(word, room):
                if line and cell_len(line + glue + piece) > room:
                    lines.append(line)
                    line, glue = "", ""
                line, glue = line + glue + piece, ""
        lines.append(line)
    return lines


def longest_piece(text: str, *, joints: bool = False) -> int:
    """Columns of the widest word; with `joints`, of the widest part that may not be broken.

    >>> longest_piece("in runs/name"), longest_piece("in runs/name", joints=True)
    (9, 5)
    """
    words = text.split()
    if joints:
        words = [piece for word in words for piece in _JOINT.split(word)]
    return max(map(cell_len, words), default=0)


def wrapped_for(width: int, text: str) -> str:
    """Paragraphs wrapped between words, each under its own indentation; words stay whole.

    >>> print(wrapped_for(12, "  one two three\\nfour"))
      one two
      three
    four
    """
    found = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        lines = textwrap.wrap(
            line.strip(),
            max(width, len(indent) + 1),
            initial_indent=indent,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        found += lines or [""]
    return "\n".join(found)


def _pieces(word: str, room: int) -> list[str]:
    if cell_len(word) <= room:
        return [word]
    pieces: list[str] = []
    for part in _JOINT.split(word):
        pieces += [part] if cell_len(part) <= room else chop_cells(part, room)
    return pieces


# Where the columns of a table go on a terminal of some width: plain numbers, no drawing.

INDENT = 4  # of what stands under another


@dataclass(frozen=True)
class Column:
    """A heading and what may happen to its cells where there is no room for all.

    A heading folds between words. `folds`: cells do so too, to `least` columns or the widest word.
    `below`: they may stand on lines of their own under the row, after `lead`; a first column over
    its row, which is indented. `spare`: the column
    may be left out; those with the largest number go first, 0 stays. `key` columns name a row:
    where a table is divided into several, each has them.
    """

    name: str
    right: bool = False
    folds: bool = False
    below: bool = False
    lead: str = ""
    spare: int = 0
    least: int = 0
    key: bool = False
    style: str = ""


@dataclass(frozen=True)
class Part:
    """Columns that stand side by side, by number, and how wide each is."""

    columns: tuple[int, ...]
    widths: tuple[int, ...]
    boxed: bool
    gap: int


@dataclass(frozen=True)
class Layout:
    """The parts of a table, one under the other; columns `below` each row, and those `left_out`."""

    parts: tuple[Part, ...]
    below: tuple[int, ...] = ()
    left_out: tuple[int, ...] = ()


def lay_out(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int, *, boxed: bool = True
) -> Layout:
    """The first of these that fits: a box; columns below their row; no box; fewer columns; parts.

    >>> columns = [Column("name", key=True), Column("what", folds=True, spare=1), Column("risk")]
    >>> rows = [["a", "quite a long sentence", "high"]]
    >>> lay_out(columns, rows, 80).parts[0].widths
    (4, 21, 4)
    >>> lay_out(columns, rows, 26).parts[0].widths
    (4, 8, 4)
    >>> lay_out(columns, rows, 12).left_out
    (1,)
    """
    texts = [[one.name, *(row[i] for row in rows)] for i, one in enumerate(columns)]
    full = [max(cell_len(line) for text in column for line in text.split("\n")) for column in texts]
    every = tuple(range(len(columns)))
    beside = tuple(i for i in every if not columns[i].below)
    below = tuple(i for i in every if columns[i].below)
    styles = [(True, 0)] * boxed + [(False, 2), (False, 1)]
    choices = [(kept, styles[:1]) for kept in _fewer_and_fewer(columns, every) if below]
    choices += [
        (kept, [s for s in styles if not (below and s[0])])
        for kept in _fewer_and_fewer(columns, beside)
    ]
    for joints in (False, True):
        least = [_least(one, texts[i], full[i], joints) for i, one in enumerate(columns)]
        for kept, allowed in choices:
            for box, gap in allowed:
                wide = width if 0 in kept else width - INDENT
                if _room(kept, least, box, gap) <= wide:
                    part = _part(kept, least, full, wide, box, gap)
                    under = tuple(i for i in below if i not in kept)
                    gone = tuple(i for i in every if i not in (*kept, *under))
                    return Layout((part,), under, gone)
    wide = width if 0 in beside else width - INDENT
    return Layout(_parts(columns, beside, least, full, wide), below)


def _fewer_and_fewer(columns: Sequence[Column], kept: tuple[int, ...]) -> list[tuple[int, ...]]:
    """All of them, then without those that can be spared, one kind after the other."""
    found = [kept]
    for spare in sorted({columns[i].spare for i in kept} - {0}, reverse=True):
        kept = tuple(i for i in kept if columns[i].spare != spare)
        found.append(kept)
    return found


def _least(column: Column, texts: Sequence[str], full: int, joints: bool) -> int:
    """How narrow a column can be; a heading folds in any case."""
    if not column.folds:
        cells = [cell_len(line) for text in texts[1:] for line in text.split("\n")]
        return max([*cells, longest_piece(column.name)])
    widest = max(longest_piece(text, joints=joints) for text in texts)
    return min(full, widest if joints else max(widest, column.least))


def _room(kept: Sequence[int], least: Sequence[int], boxed: bool, gap: int) -> int:
    between = 3 * len(kept) + 1 if boxed else gap * (len(kept) - 1)
    return sum(least[i] for i in kept) + between


def _part(
    kept: tuple[int, ...],
    least: Sequence[int],
    full: Sequence[int],
    width: int,
    boxed: bool,
    gap: int,
) -> Part:
    """Columns share what room is left; those that want little have it before the others."""
    widths = {i: least[i] for i in kept}
    left = max(0, width - _room(kept, least, boxed, gap))
    wanting = sorted(kept, key=lambda i: full[i] - least[i])
    for place, i in enumerate(wanting):
        more = min(full[i] - least[i], left // (len(wanting) - place))
        widths[i], left = widths[i] + more, left - more
    return Part(kept, tuple(widths.values()), boxed, gap)


def _parts(
    columns: Sequence[Column],
    kept: Sequence[int],
    least: Sequence[int],
    full: Sequence[int],
    width: int,
) -> tuple[Part, ...]:
    """As many columns as fit, then the next ones, each time after those that name a row."""
    keys = [i for i in kept if columns[i].key]
    groups: list[list[int]] = [[*keys]]
    for i in (one for one in kept if one not in keys):
        if len(groups[-1]) > len(keys) and _room([*groups[-1], i], least, False, 1) > width:
            groups.append([*keys])
        groups[-1].append(i)
    found = []
    for group in groups:
        part = _part(tuple(group), least, full, width, False, 1)
        widths = list(part.widths)
        while sum(widths) + len(widths) - 1 > width and max(widths) > 1:
            widths[widths.index(max(widths))] -= 1  # words are cut: there is no other way
        found.append(Part(part.columns, tuple(widths), False, 1))
    return tuple(found)


# Tables for terminals of any width: nothing is cut while a column can fold, move or be left out.

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
