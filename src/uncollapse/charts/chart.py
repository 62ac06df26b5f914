"""A chart as data, several of them on one sheet, and both as SVG and PNG.

PNG is the SVG in its light theme, in pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from uncollapse._base.check import InputError, check_int, check_number
from uncollapse._base.files import write_text, written_aside
from uncollapse._base.table import short_id
from uncollapse.charts.marks import HEIGHT, LIGHT, WIDTH, Group, Mark, Text, css_variables, drawn
from uncollapse.charts.text import safe_text, text_width, wrapped

_FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
# The first one found; DejaVu has every sign that we write.
_PNG_STYLE = "text {font-family: 'DejaVu Sans', 'Noto Sans', 'Liberation Sans', Arial, sans-serif}"
_PAD, _LINE, _GAP = 12.0, 17.0, 14.0
_TITLE, _PANEL_TITLE = 14.0, 12.5


@dataclass(frozen=True)
class Entry:
    """A line of a legend: a name, and how it is drawn in 30 x 14 units."""

    name: str
    marks: Sequence[Mark]


@dataclass(frozen=True)
class Legend:
    """A legend that several charts of a page share; templates print it as it is."""

    entries: Sequence[Entry]

    def __html__(self) -> str:
        """A list of names, each with a sample of how it is drawn."""
        items = "".join(
            f'<li><svg viewBox="0 0 30 14" aria-hidden="true">{drawn(entry.marks)}</svg>'
            f"{safe_text(entry.name)}</li>"
            for entry in self.entries
        )
        return f'<ul class="legend">{items}</ul>' if items else ""


@dataclass(frozen=True)
class Chart:
    """A drawing of `width` x `height` units with a title, a note below it and a legend.

    `description` says what the drawing shows, for readers who cannot see it. `kind` is the class of
    the figure on a page: `chart`, or `map` for a square one.

    >>> chart = Chart("A < B", "nothing", (), 10, 10)
    >>> "A &lt; B" in chart.__html__()
    True
    """

    title: str
    description: str
    marks: Sequence[Mark]
    width: float = WIDTH
    height: float = HEIGHT
    note: str = ""
    legend: Sequence[Entry] = ()
    kind: str = "chart"

    def __html__(self) -> str:
        """A captioned figure for a page, which has the `css_variables`; the legend is a list."""
        small = f"<small>{safe_text(self.note)}</small>" if self.note else ""
        caption = f"<figcaption>{safe_text(self.title)}{small}</figcaption>"
        inside = f"{caption}{_root(self)}{Legend(self.legend).__html__()}"
        return f'<figure class="{safe_text(self.kind)}">{inside}</figure>'


def empty(title: str, sentence: str, *, note: str = "") -> Chart:
    """A chart that has nothing to show, and says so.

    >>> empty("Loss", "No values were logged.").description
    'No values were logged.'
    """
    lines = wrapped(sentence, WIDTH - 20)
    words = [Text(WIDTH / 2, 30 + _LINE * i, x, anchor="middle") for i, x in enumerate(lines)]
    return Chart(title, sentence, words, WIDTH, 33 + _LINE * len(lines), note)


def svg(chart: Chart, *, pixels: float = 2.0) -> str:
    """A file of its own, `pixels` to a unit: title, drawing and legend, light and dark.

    >>> text = svg(Chart("Loss", "falls", ()))
    >>> text.startswith("<svg xmlns="), "prefers-color-scheme: dark" in text
    (True, True)
    """
    return _file(chart, pixels, f"{css_variables()} text {{ font-family: {_FONTS}; }}")


def png(chart: Chart, scale: float = 2.0) -> bytes:
    """The bytes of a PNG file in the light theme, `scale` pixels to a unit.

    >>> png(Chart("Loss", "falls", ()))[:4]
    b'\\x89PNG'
    """
    import resvg_py
    from PIL import ImageFont

    text = _file(chart, check_number("scale", scale, 0.1, 20.0), _PNG_STYLE)
    for name, value in LIGHT.items():
        text = text.replace(f"var(--{name})", value)
    # Words whose fonts are not installed would not be drawn at all: Pillow brings one.
    font = ImageFont.load_default(12)
    if not isinstance(font, ImageFont.FreeTypeFont):
        raise RuntimeError("no font for the words of a PNG: Pillow was built without FreeType")
    with TemporaryDirectory() as folder:
        path = Path(folder, "font.ttf")
        with written_aside(path) as aside:
            aside.write_bytes(font.font_bytes)
        fonts, family = [str(path)], font.getname()[0]
        return resvg_py.svg_to_bytes(svg_string=text, font_files=fonts, sans_serif_family=family)


def save(chart: Chart, path: str | Path, *, scale: float = 2.0) -> Path:
    """Write a chart as `.svg` or `.png`, whichever the path ends in; gives back the path.

    `scale` is the number of pixels of a unit in a PNG. Raises `InputError` for another ending.
    """
    path = Path(path)
    if path.suffix == ".svg":
        write_text(path, svg(chart))
    elif path.suffix == ".png":
        with written_aside(path) as aside:
            aside.write_bytes(png(chart, scale))
    else:
        raise InputError("path", repr(str(path)), "a name that ends in .svg or .png")
    return path


def panels(
    title: str,
    charts: Sequence[Chart],
    *,
    columns: int,
    note: str = "",
    legend: Sequence[Entry] = (),
) -> Chart:
    """Several charts in rows of `columns`, under one title and over one legend.

    >>> one = Chart("a", "left", (), 100, 50)
    >>> both = panels("both", [one, one], columns=2)
    >>> both.width, both.description
    (214.0, 'a: left. a: left')
    """
    check_int("columns", columns)
    sheets = [sheet(chart, pad=0.0, title=_PANEL_TITLE) for chart in charts]
    wide = [
        max(panel.width for panel in sheets[j::columns]) for j in range(min(columns, len(sheets)))
    ]
    marks: list[Mark] = []
    y = 0.0
    for start in range(0, len(sheets), columns):
        row = sheets[start : start + columns]
        x, tall = 0.0, max(panel.height for panel in row)
        for panel, room in zip(row, wide, strict=False):
            # Feet stand on one line, whatever the heads need.
            marks.append(Group(panel.marks, x, y + tall - panel.height))
            x += room + _GAP
        y += tall + _GAP
    words = ". ".join(f"{chart.title}: {chart.description}" for chart in charts)
    width = sum(wide) + _GAP * max(0, len(wide) - 1)
    return Chart(title, words, tuple(marks), width, max(0.0, y - _GAP), note, legend, "panels")


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
    y += chart.height
    legend, tall = _legend(chart.legend, chart.width)
    if legend:
        marks.append(Group(legend, pad, y + 6))
        y += tall + 6
    width, height = chart.width + 2 * pad, y + pad
    return Chart(chart.title, chart.description, tuple(marks), width, height, kind=chart.kind)


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
            marks.append(Text(x + 36, y + 11 + i * _LINE, line, color="ink"))
        y += _LINE * max(0, len(lines) - 1)
        x += wide
    return marks, y + _LINE


def _file(chart: Chart, pixels: float, style: str) -> str:
    whole = sheet(chart)
    width, height = math.ceil(pixels * whole.width), math.ceil(pixels * whole.height)
    size = f'xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
    back = f'<style>{style}</style><rect width="100%" height="100%" fill="var(--card)"/>'
    return _root(whole, size, back) + "\n"


def _root(chart: Chart, attributes: str = "", before: str = "") -> str:
    body = drawn(chart.marks)
    name = short_id(chart.title, chart.description, body)
    box = f'viewBox="0 0 {chart.width:g} {chart.height:g}"'
    return (
        f'<svg {attributes}{box} role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{safe_text(chart.title)}</title>'
        f'<desc id="{name}-d">{safe_text(chart.description)}</desc>{before}{body}</svg>'
    )
