"""A table of shaded cells, such as a risk over batch shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from uncollapse.report.charts.axes import WIDTH, figure
from uncollapse.report.markup import Html, esc, number

__all__ = ["Tile", "heatmap", "tiles"]

_LEFT, _TOP, _TALL = 56, 8, 30


@dataclass(frozen=True)
class Tile:
    """A cell: what is written in it, and a colour of the page's at some strength behind it."""

    text: str
    tone: str
    strength: float


def tiles(
    title: str,
    rows: Sequence[object],
    columns: Sequence[object],
    cells: Mapping[tuple[int, int], Tile],
    *,
    row_label: str,
    column_label: str,
    words: str,
    small: str = "",
) -> Html:
    """Cells by row and column number, not all of which there need be; `words` say them aloud."""
    wide = (WIDTH - _LEFT - 4) / len(columns)
    bottom = _TOP + len(rows) * _TALL
    parts = []
    for i, name in enumerate(rows):
        y = _TOP + i * _TALL + 20
        parts.append(f'<text x="{_LEFT - 8}" y="{y}" text-anchor="end">{esc(name)}</text>')
    for (i, j), tile in cells.items():
        x, y = _LEFT + j * wide, _TOP + i * _TALL
        parts.append(
            f'<rect x="{x:.1f}" y="{y}" width="{wide - 2:.1f}" height="{_TALL - 2}" rx="3" '
            f'fill="var(--{tile.tone})" fill-opacity="{tile.strength:.2f}"/>'
            f'<text class="cell" x="{x + wide / 2 - 1:.1f}" y="{y + 18}" '
            f'text-anchor="middle">{esc(tile.text)}</text>'
        )
    for j, name in enumerate(columns):
        x = _LEFT + (j + 0.5) * wide
        parts.append(f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">{esc(name)}</text>')
    middle = (_LEFT + WIDTH) / 2
    parts.append(
        f'<text x="{middle}" y="{bottom + 32}" text-anchor="middle">{esc(column_label)}</text>'
        f'<text transform="translate(12 {(_TOP + bottom) / 2}) rotate(-90)" '
        f'text-anchor="middle">{esc(row_label)}</text>'
    )
    return figure(title, words, Html("".join(parts)), small=small, height=bottom + 40)


def heatmap(
    title: str,
    rows: Sequence[object],
    columns: Sequence[object],
    values: Sequence[Sequence[float]],
    *,
    row_label: str,
    column_label: str,
    small: str = "",
    crossed: Sequence[Sequence[bool]] | None = None,
) -> Html:
    """Numbers shaded by size, each written in its cell; `crossed` marks cells with ✗ as well.

    >>> chart = heatmap("risk", [2, 4], [8], [[0.1], [0.9]], row_label="P", column_label="K",
    ...                 crossed=[[False], [True]])
    >>> "✗ 0.9" in chart, "P 2: 0.1" in chart
    (True, True)
    """
    finite = [v for row in values for v in row if math.isfinite(v)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    cells, words = {}, [f"{column_label}: {', '.join(map(str, columns))}"]
    for i, (name, row) in enumerate(zip(rows, values, strict=True)):
        words.append(f"{row_label} {name}: " + ", ".join(number(v) for v in row))
        for j, value in enumerate(row):
            shade = (value - low) / ((high - low) or 1.0) if math.isfinite(value) else 0.0
            cross = "✗ " * (crossed is not None and crossed[i][j])
            cells[i, j] = Tile(f"{cross}{number(value, 2)}", "s1", 0.06 + 0.49 * shade)
    return tiles(
        title,
        rows,
        columns,
        cells,
        row_label=row_label,
        column_label=column_label,
        words=". ".join(words),
        small=small,
    )
