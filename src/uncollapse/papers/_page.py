"""Tables and pages as data, and as Markdown; `uncollapse.cli` shows them in a terminal."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Page", "Table"]


@dataclass(frozen=True)
class Table:
    """A heading and rows of text. `verdict` is the column that says whether something holds.

    Rows whose number is in `strong` are the ones to look at. `notes` are sentences that stand
    under the table.

    >>> print(Table(["a", "b"], [["x|y", "1"]], strong=[0]).markdown())
    | a | b |
    | --- | --- |
    | x\\|y | **1** |
    """

    heading: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    verdict: int | None = None
    strong: Collection[int] = ()
    notes: Sequence[str] = ()

    def markdown(self) -> str:
        """The table; its title and notes are left to the page."""
        rows = [[cell.replace("|", "\\|") for cell in row] for row in self.rows]
        for number in self.strong:
            first, *others = rows[number]
            rows[number] = [first, *(f"**{cell}**" if cell else "" for cell in others)]
        lines = [self.heading, ["---"] * len(self.heading), *rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@dataclass(frozen=True)
class Page:
    """Tables under a title; `about` says how they were made, `notes` what differs.

    `picture` is the name of a file beside the page, shown on it.
    """

    title: str
    tables: Sequence[Table] = ()
    about: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    picture: str = ""

    def markdown(self) -> str:
        """The page."""
        parts = [f"# {self.title}"] if self.title else []
        parts += [f"![{self.title}]({self.picture})"] if self.picture else []
        if self.about:
            parts.append("\n".join(f"- {name}: {value}" for name, value in self.about.items()))
        for table in self.tables:
            parts += [f"## {table.title}"] if table.title else []
            parts.append(table.markdown())
            parts += ["\n".join(f"- {note}" for note in table.notes)] if table.notes else []
        return "\n\n".join([*parts, *self.notes]) + "\n"
