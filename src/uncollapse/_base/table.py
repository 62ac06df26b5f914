"""Tables as data, for the terminal, for pages and for Markdown."""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from uncollapse._base.check import number as number
from uncollapse._base.check import percent as percent

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table as RichTable

_WHOLE = 20  # characters up to which a cell or a word of a heading stays whole on a terminal
_SENTENCE = 120  # characters of a cell that wants lines between the rows of a terminal
_GAP = 2  # between two columns of a terminal
_NUMBER = re.compile(r"[+−-]?[\d.,]+(e[+-]?\d+)?\s?%?|[–-]?")


# Styles of a terminal for the classes of a page.
_STYLES = {"good": "green", "warn": "yellow", "bad": "red", "whole": "", "badge": "", "code": ""}


@dataclass(frozen=True)
class Cell:
    """A text, the number it is sorted by, small print, and a style.

    The style is a class of a page's CSS (`good`, `warn` and `bad` are colours on a terminal too),
    or one of rich's on a terminal.
    """

    text: object
    value: float | None = None
    note: str = ""
    style: str = ""


@dataclass
class Table:
    """Rows under a heading: texts, numbers, None or `Cell`s; the first `keys` of a row name it.

    The rows whose numbers are in `strong` are the ones to look at, `verdict` is the column that
    says whether something holds, `notes` stand under the table. On a page, `first` shows that many
    rows and a switch for the others, and `sortable` adds sorting by column. A terminal that is too
    narrow gets the columns in several tables, each with the keys.

    >>> table = Table(["name", "share"], [["a", Cell("12 %", 0.12)], ["b", None]])
    >>> table.numeric, table.lines[1][1].text
    ([False, True], '–')
    >>> print(Table(["a", "b"], [["x|y", "1"]], strong=[0]).markdown())
    | a | b |
    | --- | --- |
    | x\\|y | **1** |
    """

    head: Sequence[str]
    rows: Sequence[Sequence[object]] = field(default_factory=list)
    title: str = ""
    notes: Sequence[str] = ()
    strong: Collection[int] = ()
    verdict: int | None = None
    first: int | None = None
    sortable: bool = False
    keys: int = 1

    def add(self, *cells: object) -> None:
        """Append a row."""
        self.rows = [*self.rows, cells]

    @property
    def lines(self) -> list[list[Cell]]:
        """The rows, each value as a cell."""
        return [[_cell(value) for value in row] for row in self.rows]

    @property
    def numeric(self) -> list[bool]:
        """For each column, whether all its cells are numbers or dashes."""
        numbers = [[c.value is not None or c.text == "–" for c in line] for line in self.lines]
        return [bool(numbers) and all(row[i] for row in numbers) for i in range(len(self.head))]

    @property
    def name(self) -> str:
        """An id for its switch on a page: the same for the same content."""
        return short_id("table", self.title, *self.head, *(str(row) for row in self.rows[:50]))

    def markdown(self) -> str:
        """The table in Markdown; its title and notes are left to the page."""
        rows = [[str(cell.text).replace("|", "\\|") for cell in line] for line in self.lines]
        for row in self.strong:
            first, *others = rows[row]
            rows[row] = [first, *(f"**{text}**" if text else "" for text in others)]
        lines = [self.head, ["---"] * len(self.head), *rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Drawn for the width of `options`; rich folds what is longer than its column."""
        from rich.cells import cell_len
        from rich.text import Text

        if self.title:
            yield Text(self.title, style="italic")
        least, full = [], []  # of each column: short cells stay whole, sentences fold
        for i, heading in enumerate(self.head):
            texts = "\n".join(str(line[i].text) for line in self.lines).split("\n")
            longest = max(map(cell_len, texts))
            full.append(max(longest, cell_len(heading)))
            least.append(max([min(_WHOLE, longest), *map(cell_len, heading.split())]))
        for part, columns in enumerate(self._parts(least, options.max_width)):
            if part:
                yield Text("")
            yield self._drawn(_shared_room(options.max_width, columns, least, full))
        yield from map(Text, self.notes)

    def _parts(self, least: Sequence[int], width: int) -> Iterator[list[int]]:
        """The columns of each table: as many as fit, then the next ones after those of the keys."""
        part = keys = list(range(self.keys))
        for i in range(self.keys, len(self.head)):
            if len(part) > len(keys) and _room([*part, i], least) > width:
                yield part
                part = keys
            part = [*part, i]
        yield part

    def _drawn(self, widths: Mapping[int, int]) -> RichTable:
        """The columns that have a width."""
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        texts = [[str(cell.text) for cell in line] for line in self.lines]
        drawn = RichTable(
            box=box.SIMPLE_HEAD,
            padding=(0, _GAP - 1, 0, 0),
            pad_edge=False,
            show_edge=False,
            show_header=any(self.head),
            show_lines=any(len(text) > _SENTENCE for row in texts for text in row),
        )
        for i, width in widths.items():
            numeric = bool(texts) and all(_NUMBER.fullmatch(row[i]) for row in texts)
            drawn.add_column(Text(self.head[i]), width=width, overflow="fold")
            drawn.columns[-1].justify = "right" if numeric else "left"
        for row, line in enumerate(self.lines):
            bold = ["", *["bold" * (row in self.strong)] * len(line)]
            styles = [" ".join(_STYLES.get(w, w) for w in c.style.split()).strip() for c in line]
            drawn.add_row(*(Text(texts[row][i], styles[i] or bold[i]) for i in widths))
        return drawn


def shown(value: object) -> object:
    """A number as a person writes it, a dash for None; anything else as it is.

    >>> shown(0.12345), shown(None), shown("text")
    ('0.123', '–', 'text')
    """
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return number(value)
    return value


def short_id(*parts: object) -> str:
    """A name for elements that refer to each other: the same for the same content.

    >>> short_id("a") == short_id("a") != short_id("b")
    True
    """
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode("utf-8", "replace")).hexdigest()
    return f"u{digest[:10]}"


def wrapped_for(width: int, text: str) -> str:
    """Paragraphs wrapped between words, each under its own indentation; words stay whole.

    >>> print(wrapped_for(12, "  one two three\\nfour"))
      one two
      three
    four
    """
    wrapper = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False)
    lines: list[str] = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        wrapper.initial_indent = wrapper.subsequent_indent = indent
        lines += wrapper.wrap(line.strip()) or [""]
    return "\n".join(lines)


def _cell(value: object) -> Cell:
    if isinstance(value, Cell):
        return value
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return Cell(shown(value), cast(float, value) if numeric else None)


def _shared_room(
    width: int, columns: Sequence[int], least: Sequence[int], full: Sequence[int]
) -> dict[int, int]:
    """The width of each column; columns that need little are served first."""
    widths = {i: max(1, least[i]) for i in columns}
    spare = max(0, width - _room(columns, least))
    for done, i in enumerate(sorted(columns, key=lambda i: full[i] - least[i])):
        more = min(full[i] - least[i], spare // (len(columns) - done))
        widths[i] += more
        spare -= more
    return widths


def _room(columns: Collection[int], least: Sequence[int]) -> int:
    return sum(least[i] for i in columns) + _GAP * (len(columns) - 1)
