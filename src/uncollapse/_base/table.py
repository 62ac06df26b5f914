"""Tables as data, for the terminal, for pages and for Markdown; numbers as a person writes them."""

from __future__ import annotations

import hashlib
import math
import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table as RichTable

_LONG_HEADING = 16  # characters from which a heading of a page wraps
_WHOLE = 20  # characters up to which a cell or a word is never broken on a terminal
_SENTENCE = 120  # characters of a cell that wants lines between the rows of a terminal
_GAP = 2  # between two columns of a terminal
_NUMBER = re.compile(r"[+−-]?[\d.,]+(e[+-]?\d+)?\s?%?|[–-]?")


@dataclass(frozen=True)
class Cell:
    """A text, the number it is sorted by, small print, and a style.

    The style is a class of the CSS on a page, one of rich's on a terminal.
    """

    text: object
    value: float | None = None
    note: str = ""
    style: str = ""

    @property
    def is_number(self) -> bool:
        """Whether it stands in a column of numbers: a dash may."""
        return self.value is not None or self.text == "–"


class Heading(NamedTuple):
    """The title of a column; numbers stand to the right."""

    title: str
    numeric: bool

    @property
    def style(self) -> str:
        """Its classes in the CSS; a long one wraps, but not word by word."""
        return " ".join(["n"] * self.numeric + ["w"] * (len(self.title) > _LONG_HEADING))


@dataclass
class Table:
    """Rows under a heading: texts, numbers, None or `Cell`s; the first `keys` of a row name it.

    The rows whose numbers are in `strong` are the ones to look at, `verdict` is the column that
    says whether something holds, `notes` stand under the table. On a page, `first` shows that many
    rows and a switch for the others, and `sortable` adds sorting by column. A terminal that is too
    narrow gets the columns in several tables, each with the keys.

    >>> table = Table(["name", "share"], [["a", Cell("12 %", 0.12)], ["b", None]])
    >>> [column.numeric for column in table.columns], table.lines[1][1].text
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
        """A row at the end."""
        self.rows = [*self.rows, cells]

    @property
    def lines(self) -> list[list[Cell]]:
        """The rows, each value as a cell."""
        return [[_cell(value) for value in row] for row in self.rows]

    @property
    def columns(self) -> list[Heading]:
        """The headings; a column is one of numbers if all its cells are."""
        lines = self.lines
        return [
            Heading(title, bool(lines) and all(line[i].is_number for line in lines))
            for i, title in enumerate(self.head)
        ]

    @property
    def folded(self) -> bool:
        """Whether a page shows some rows on request only."""
        return self.first is not None and len(self.rows) > self.first + 2

    @property
    def label(self) -> str:
        """What a screen reader calls it."""
        return self.title or ", ".join(self.head)

    @property
    def name(self) -> str:
        """An id for its switch: the same for the same content."""
        firsts = (line[0].text for line in self.lines[:50])
        return short_id("table", self.label, *firsts, len(self.rows))

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
        from rich.text import Text

        if self.title:
            yield Text(self.title, style="italic")
        for number_of_part, columns in enumerate(self._parts(options.max_width)):
            if number_of_part:
                yield Text("")
            yield self._drawn(columns, options.max_width)
        for note in self.notes:
            yield Text(note)

    def _parts(self, width: int) -> Iterator[list[int]]:
        """The columns of each table: as many as fit, then the next ones after those of the keys."""
        least = [_narrowest(texts) for texts in self._texts()]
        keys = list(range(self.keys))
        part = keys
        for i in range(self.keys, len(self.head)):
            if len(part) > len(keys) and _room([*part, i], least) > width:
                yield part
                part = keys
            part = [*part, i]
        yield part

    def _drawn(self, columns: Sequence[int], width: int) -> RichTable:
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        texts = self._texts()
        long = any(len(text) > _SENTENCE for column in texts for text in column)
        drawn = RichTable(
            box=box.SIMPLE_HEAD,
            padding=(0, _GAP - 1, 0, 0),
            pad_edge=False,
            show_edge=False,
            show_header=any(self.head),
            show_lines=long,
        )
        for i, room in zip(columns, self._widths(columns, width), strict=True):
            numeric = bool(self.rows) and all(map(_NUMBER.fullmatch, texts[i][1:]))
            drawn.add_column(
                Text(self.head[i]),
                justify="right" if numeric else "left",
                width=room,
                overflow="fold",
            )
        for row, line in enumerate(self.lines):
            bold = ["", *["bold" * (row in self.strong)] * len(line)]
            drawn.add_row(*(Text(str(line[i].text), line[i].style or bold[i]) for i in columns))
        return drawn

    def _widths(self, columns: Sequence[int], width: int) -> list[int]:
        """Columns share what room there is; those that want little have it before the others."""
        texts = self._texts()
        least = {i: _narrowest(texts[i]) for i in columns}
        full = {i: _widest(texts[i]) for i in columns}
        spare = max(0, width - _room(columns, least))
        for left, i in enumerate(sorted(columns, key=lambda i: full[i] - least[i]), -len(columns)):
            more = min(full[i] - least[i], spare // -left)
            least[i], spare = least[i] + more, spare - more
        return [max(1, least[i]) for i in columns]

    def _texts(self) -> list[list[str]]:
        """The texts of each column, its heading first."""
        lines = self.lines
        return [
            [title, *(str(line[i].text) for line in lines)] for i, title in enumerate(self.head)
        ]


def shown(value: object) -> object:
    """A number as a person writes it, a dash for None; anything else as it is.

    >>> shown(0.12345), shown(None), shown("text")
    ('0.123', '–', 'text')
    """
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return number(value)
    return value


def number(value: float | int | None, digits: int = 3) -> str:
    """A number as a person writes it; a dash for what is not known.

    >>> number(0.12345), number(12345.6), number(1e-7), number(12), number(None), number(1e30)
    ('0.123', '12,346', '1e-7', '12', '–', '1e30')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if 999.5 <= abs(value) < 1e7:  # where three digits would be written as 1e3
        return f"{value:,.0f}"
    mantissa, exponential, exponent = f"{value:.{digits}g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if exponential else mantissa


def percent(share: float | None) -> str:
    """A share of one in per cent, with three digits at most.

    >>> [percent(share).replace("\N{NO-BREAK SPACE}", "_") for share in (0.98765, 1.2e-4)]
    ['98.8_%', '0.012_%']
    """
    if share is None or math.isnan(share):
        return "–"
    return f"{number(100 * float(share))}\N{NO-BREAK SPACE}%"


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
    lines: list[str] = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        lines += textwrap.wrap(
            line.strip(),
            max(width, len(indent) + 1),
            initial_indent=indent,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
    return "\n".join(lines)


def _cell(value: object) -> Cell:
    if isinstance(value, Cell):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Cell(shown(value), value)
    return Cell(shown(value))


def _narrowest(texts: Sequence[str]) -> int:
    """How narrow a column may be: short cells stay whole, sentences have some room to fold in."""
    heading, *cells = texts
    return max([min(_WHOLE, _widest(cells)), *map(_width, heading.split())])


def _widest(texts: Sequence[str]) -> int:
    return max((_width(line) for text in texts for line in text.split("\n")), default=1)


def _room(columns: Collection[int], widths: Sequence[int] | dict[int, int]) -> int:
    return sum(widths[i] for i in columns) + _GAP * (len(columns) - 1)


def _width(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
