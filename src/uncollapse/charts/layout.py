"""Title, note and legend as marks, and several charts on one sheet: for files of their own."""

from __future__ import annotations

from collections.abc import Sequence

from uncollapse._base.check import check_int
from uncollapse.charts.marks import Chart, Entry, Group, Mark, Text
from uncollapse.charts.text import text_width, wrapped

__all__ = ["panels", "sheet"]

_PAD, _LINE = 12.0, 17.0
_TITLE, _PANEL_TITLE = 14.0, 12.5


def sheet(chart: Chart, pad: float = _PAD, title: float = _TITLE) -> Chart:
    """The same chart with its title (of this size), note and legend drawn, in an empty edge.

    >>> one = sheet(Chart("Loss", "falls", (), 100, 50, "over steps"))
    >>> one.width, [mark.text for mark in one.marks if isinstance(mark, Text)]
    (124.0, ['Loss', 'over steps'])
    """
    marks: list[Mark] = []
    y = pad
    for line in wrapped(chart.title, chart.width, title, bold=True):
        y += _LINE
        marks.append(Text(pad, y - 4, line, title, "ink", bold=True))
    for line in wrapped(chart.note, chart.width):
        y += _LINE - 1
        marks.append(Text(pad, y - 4, line))
    y += 6 if marks else 0
    marks.append(Group(chart.marks, pad, y))
    drawn, tall = _legend(chart.legend, chart.width)
    if drawn:
        marks.append(Group(drawn, pad, y + chart.height + 6))
        tall += 6
    return Chart(
        chart.title,
        chart.description,
        tuple(marks),
        chart.width + 2 * pad,
        y + chart.height + tall + pad,
        kind=chart.kind,
    )


def panels(
    title: str,
    charts: Sequence[Chart],
    *,
    columns: int,
    note: str = "",
    legend: Sequence[Entry] = (),
    gap: float = 14.0,
    kind: str = "panels",
) -> Chart:
    """Several charts in rows of `columns`, under one title and over one legend.

    >>> one = Chart("a", "left", (), 100, 50)
    >>> both = panels("both", [one, one], columns=2)
    >>> both.width, both.description
    (214.0, 'a: left. a: left')
    """
    check_int("columns", columns)
    drawn = [sheet(chart, pad=0.0, title=_PANEL_TITLE) for chart in charts]
    rows = [drawn[i : i + columns] for i in range(0, len(drawn), columns)]
    wide = [
        max(row[j].width for row in rows if j < len(row)) for j in range(min(columns, len(drawn)))
    ]
    marks: list[Mark] = []
    y = 0.0
    for row in rows:
        x, tall = 0.0, max(one.height for one in row)
        for one, room in zip(row, wide, strict=False):
            # Feet stand on one line, whatever the heads need.
            marks.append(Group(one.marks, x, y + tall - one.height))
            x += room + gap
        y += tall + gap
    words = ". ".join(f"{chart.title}: {chart.description}" for chart in charts)
    width = sum(wide) + gap * max(0, len(wide) - 1)
    return Chart(title, words, tuple(marks), width, max(0.0, y - gap), note, legend, kind)


def _legend(entries: Sequence[Entry], room: float) -> tuple[list[Mark], float]:
    """Entries one after the other, on as many lines as they need, and how high that is."""
    marks: list[Mark] = []
    x = y = 0.0
    for entry in entries:
        lines = wrapped(entry.name, room - 36)
        wide = 36 + max((text_width(line) for line in lines), default=0.0) + 14
        if x and x + wide > room + 14:
            x, y = 0.0, y + _LINE
        marks.append(Group(entry.marks, x, y))
        for i, line in enumerate(lines):
            marks.append(Text(x + 36, y + 11 + i * _LINE, line, colour="ink"))
        y += _LINE * max(0, len(lines) - 1)
        x += wide
    return marks, (y + _LINE if entries else 0.0)
