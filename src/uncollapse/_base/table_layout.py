"""Where the columns of a table go on a terminal of some width: plain numbers, no drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from uncollapse._base.word_wrap import longest_piece

__all__ = ["INDENT", "Column", "Layout", "Part", "lay_out"]

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
