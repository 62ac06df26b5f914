"""Tables as data: what each cell shows, what it is sorted by, which columns are numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from uncollapse.charts.escape import short_id
from uncollapse.charts.numbers import number

__all__ = ["Cell", "Column", "Table", "shown"]


@dataclass(frozen=True)
class Cell:
    """A place in a table: its text, the number it is sorted by, small print, a class of the CSS."""

    text: object
    value: float | None = None
    note: str = ""
    style: str = ""

    @property
    def is_number(self) -> bool:
        """Whether it stands in a column of numbers: a dash may."""
        return self.value is not None or self.text == "–"


@dataclass(frozen=True)
class Column:
    """A heading; numbers stand to the right, a long heading wraps, but not word by word."""

    title: str
    numeric: bool

    @property
    def style(self) -> str:
        """Its classes in the CSS."""
        return " ".join(["n"] * self.numeric + ["w"] * (len(self.title) > 16))


@dataclass(frozen=True)
class Table:
    """Rows under a heading; the first cell of a row names it.

    `first` shows that many rows and a switch for the rest. `sortable` adds sorting by column where
    scripts run.

    >>> table = Table(["name", "share"], [["a", Cell("12 %", 0.12)], ["b", None]])
    >>> [column.numeric for column in table.columns], table.lines[1][1].text
    ([False, True], '–')
    """

    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""
    first: int | None = None
    sortable: bool = False

    @cached_property
    def lines(self) -> list[list[Cell]]:
        """The rows, each value as a cell."""
        return [[_cell(value) for value in row] for row in self.rows]

    @cached_property
    def columns(self) -> list[Column]:
        """The headings; a column is one of numbers if all its cells are."""
        return [
            Column(title, bool(self.lines) and all(line[i].is_number for line in self.lines))
            for i, title in enumerate(self.head)
        ]

    @property
    def folded(self) -> bool:
        """Whether some rows are shown on request only."""
        return self.first is not None and len(self.rows) > self.first + 2

    @property
    def label(self) -> str:
        """What a screen reader calls it."""
        return self.caption or ", ".join(self.head)

    @property
    def name(self) -> str:
        """An id for its switch: the same for the same content."""
        firsts = (line[0].text for line in self.lines[:50])
        return short_id("table", self.label, *firsts, len(self.rows))


def shown(value: object) -> object:
    """A number as a person writes it, a dash for None; anything else as it is.

    >>> shown(0.12345), shown(None), shown("text")
    ('0.123', '–', 'text')
    """
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return number(value)
    return value


def _cell(value: object) -> Cell:
    if isinstance(value, Cell):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Cell(shown(value), value)
    return Cell(shown(value))
