"""A chart as data: what it is called, what it says in words, its marks and its legend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from uncollapse._base.check import InputError
from uncollapse._base.files import streamed_aside, write_text
from uncollapse.charts.marks import Mark, Text

__all__ = ["HEIGHT", "WIDTH", "Chart", "Entry", "Legend", "empty", "save"]

# Drawn at 340 units wide and shown at 300 to 416 pixels: 12 units of text stay readable.
WIDTH, HEIGHT = 340, 220


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
        """A list."""
        from uncollapse.charts.render_svg import legend_list

        return legend_list(self.entries)


@dataclass(frozen=True)
class Chart:
    """A drawing of `width` x `height` units with a title, a note below it and a legend.

    `description` says what the drawing shows, for who does not see it. `kind` is the class of the
    figure on a page: `chart`, or `map` for a square one.

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
        """A captioned figure for a page, which templates print as it is."""
        from uncollapse.charts.render_svg import figure

        return figure(self)


def empty(title: str, sentence: str, *, note: str = "") -> Chart:
    """A chart that has nothing to show, and says so.

    >>> empty("Loss", "No values were logged.").description
    'No values were logged.'
    """
    words = Text(WIDTH / 2, 30, sentence, anchor="middle")
    return Chart(title, sentence, (words,), WIDTH, 50, note)


def save(chart: Chart, path: str | Path, *, scale: float = 2.0) -> Path:
    """Write a chart as `.svg` or `.png`, whichever the path ends in; gives back the path.

    `scale` is the number of pixels of a unit in a PNG. Raises `InputError` for another ending.
    """
    from uncollapse.charts.render_png import png
    from uncollapse.charts.render_svg import svg

    path = Path(path)
    if path.suffix == ".svg":
        write_text(path, svg(chart))
    elif path.suffix == ".png":
        with streamed_aside(path) as file:
            file.write(png(chart, scale))
    else:
        raise InputError("path", repr(str(path)), "a name that ends in .svg or .png")
    return path
