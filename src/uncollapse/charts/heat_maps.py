"""A table of shaded cells, such as a risk over batch shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from uncollapse._base.table import number
from uncollapse.charts.chart import Chart, empty
from uncollapse.charts.marks import WIDTH, Mark, Rect, Text
from uncollapse.charts.text import fitting_size, text_width

__all__ = ["Tile", "heatmap", "tiles"]

_TOP, _TALL = 8.0, 30.0
_LEAST = 9.0  # the smallest text; where it does not fit, cells are made wider


@dataclass(frozen=True)
class Tile:
    """A cell: what is written in it, and a colour at some strength behind it.

    `sign` stands before the text, or above it where there is no room.
    """

    text: str
    tone: str
    strength: float
    sign: str = ""


def tiles(
    title: str,
    rows: Sequence[object],
    columns: Sequence[object],
    cells: Mapping[tuple[int, int], Tile],
    *,
    row_label: str,
    column_label: str,
    words: str,
    note: str = "",
) -> Chart:
    """Cells by row and column number, not all of which there need be; `words` say them aloud."""
    if not rows or not columns:
        return empty(title, "There are no cells to draw.", note=note)
    left = 32.0 + max(text_width(str(name)) for name in rows)
    texts = [tile.text for tile in cells.values()] + [str(name) for name in columns]
    need = max(text_width(text, _LEAST) for text in texts) + 6
    wide = max((WIDTH - left - 4) / len(columns), need)
    full = [f"{tile.sign} {tile.text}".strip() for tile in cells.values()]
    size = min((fitting_size(text, wide - 6, least=_LEAST) for text in texts), default=12.0)
    one_line = all(text_width(text, size) <= wide - 6 for text in full)
    tall = _TALL if one_line else _TALL + 14
    bottom = _TOP + len(rows) * tall
    marks: list[Mark] = []
    for i, name in enumerate(rows):
        marks.append(Text(left - 8, _TOP + (i + 0.5) * tall + 3, str(name), anchor="end"))
    for (i, j), tile in cells.items():
        x, y = left + j * wide, _TOP + i * tall
        middle, tip = x + wide / 2 - 1, f"{row_label} {rows[i]}, {column_label} {columns[j]}"
        said = f"{tile.sign} {tile.text}".strip()
        marks.append(
            Rect(x, y, wide - 2, tall - 2, tile.tone, tile.strength, round=3, tip=f"{tip}: {said}")
        )
        lines = [said] if one_line else [line for line in (tile.sign, tile.text) if line]
        for k, line in enumerate(lines):
            at = y + tall / 2 + 3 + 14 * (k - (len(lines) - 1) / 2)
            marks.append(Text(middle, at, line, size, "ink", "middle"))
    for j, name in enumerate(columns):
        middle = left + (j + 0.5) * wide - 1
        marks.append(Text(middle, bottom + 14, str(name), size, anchor="middle"))
    width = left + len(columns) * wide + 4
    marks.append(Text((left + width) / 2, bottom + 32, column_label, anchor="middle"))
    marks.append(Text(12, (_TOP + bottom) / 2, row_label, anchor="middle", turn=-90))
    return Chart(title, words, tuple(marks), width, bottom + 40, note)


def heatmap(
    title: str,
    rows: Sequence[object],
    columns: Sequence[object],
    values: Sequence[Sequence[float]],
    *,
    row_label: str,
    column_label: str,
    note: str = "",
    crossed: Sequence[Sequence[bool]] | None = None,
) -> Chart:
    """Numbers shaded by size, each written in its cell; `crossed` marks cells with ✗ as well.

    >>> chart = heatmap("risk", [2, 4], [8], [[0.1], [0.9]], row_label="P", column_label="K",
    ...                  crossed=[[False], [True]])
    >>> chart.description
    'K: 8. P 2: 0.1. P 4: 0.9'
    """
    finite = [v for row in values for v in row if math.isfinite(v)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    cells, words = {}, [f"{column_label}: {', '.join(map(str, columns))}"]
    for i, (name, row) in enumerate(zip(rows, values, strict=True)):
        words.append(f"{row_label} {name}: " + ", ".join(number(v) for v in row))
        for j, value in enumerate(row):
            shade = (value - low) / ((high - low) or 1.0) if math.isfinite(value) else 0.0
            sign = "✗" if crossed is not None and crossed[i][j] else ""
            cells[i, j] = Tile(number(value, 2), "s1", round(0.06 + 0.49 * shade, 2), sign)
    return tiles(
        title,
        rows,
        columns,
        cells,
        row_label=row_label,
        column_label=column_label,
        words=". ".join(words),
        note=note,
    )
