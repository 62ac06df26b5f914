"""A table of numbers shaded by size, such as a risk over batch shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from uncollapse.report.charts.axes import WIDTH, figure
from uncollapse.report.markup import Html, esc, number

__all__ = ["heatmap"]


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
    """Each value is written in its cell; `crossed` marks cells with ✗ as well.

    >>> chart = heatmap("risk", [2, 4], [8], [[0.1], [0.9]], row_label="P", column_label="K",
    ...                 crossed=[[False], [True]])
    >>> "✗ 0.9" in chart, "P 2: 0.1" in chart
    (True, True)
    """
    left, top, tall = 56, 8, 30
    wide = (WIDTH - left - 4) / len(columns)
    finite = [v for row in values for v in row if math.isfinite(v)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    parts, words = [], []
    for i, (name, row) in enumerate(zip(rows, values, strict=True)):
        y = top + i * tall
        parts.append(f'<text x="{left - 8}" y="{y + 20}" text-anchor="end">{esc(name)}</text>')
        words.append(f"{row_label} {name}: " + ", ".join(number(v) for v in row))
        for j, value in enumerate(row):
            shade = (value - low) / ((high - low) or 1.0) if math.isfinite(value) else 0.0
            bad = crossed is not None and crossed[i][j]
            x = left + j * wide
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{wide - 2:.1f}" height="{tall - 2}" rx="3" '
                f'fill="var(--s1)" fill-opacity="{0.06 + 0.49 * shade:.2f}"/>'
                f'<text class="cell" x="{x + wide / 2 - 1:.1f}" y="{y + 18}" '
                f'text-anchor="middle">{"✗ " * bad}{number(value, 2)}</text>'
            )
    bottom = top + len(rows) * tall
    for j, name in enumerate(columns):
        x = left + (j + 0.5) * wide
        parts.append(f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">{esc(name)}</text>')
    middle = (left + WIDTH) / 2
    parts.append(
        f'<text x="{middle}" y="{bottom + 32}" text-anchor="middle">{esc(column_label)}</text>'
        f'<text transform="translate(12 {(top + bottom) / 2}) rotate(-90)" '
        f'text-anchor="middle">{esc(row_label)}</text>'
    )
    heads = f"{column_label}: {', '.join(map(str, columns))}"
    return figure(
        title, ". ".join([heads, *words]), Html("".join(parts)), small=small, height=bottom + 40
    )
