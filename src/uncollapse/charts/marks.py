"""What a drawing is made of: shapes, markers, words and pictures, at places in its own units.

Colours are names of the theme (`s0`, `ink`, `bad`) or `#rrggbb`. `tip` is what a reader sees who
points at the mark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from uncollapse._base.check import InputError, check_choice
from uncollapse._base.files import write_text, written_aside

__all__ = [
    "DARK",
    "DASHES",
    "HEIGHT",
    "LIGHT",
    "MARKERS",
    "SERIES",
    "WIDTH",
    "Chart",
    "Circle",
    "Entry",
    "Group",
    "Legend",
    "Line",
    "Mark",
    "Picture",
    "Place",
    "Points",
    "Polyline",
    "Rect",
    "Text",
    "brace",
    "css_variables",
    "empty",
    "hatch",
    "save",
]


Place = tuple[float, float]

# A series is told by its dash and its marker as well as by its colour.
DASHES: tuple[tuple[float, ...], ...] = (
    (), (7, 4), (2, 4), (9, 3, 2, 3), (12, 5), (4, 2), (1, 5), (14, 3, 2, 3, 2, 3),
)  # fmt: skip

# Outlines centred on 0, about six units large.
MARKERS = {
    "circle": "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z",
    "square": "M-2.8-2.8 2.8-2.8 2.8 2.8-2.8 2.8z",
    "triangle": "M0-3.6 3.4 2.6-3.4 2.6z",
    "diamond": "M0-3.9 3.5 0 0 3.9-3.5 0z",
    "plus": "M-1-3.6 1-3.6 1-1 3.6-1 3.6 1 1 1 1 3.6-1 3.6-1 1-3.6 1-3.6-1-1-1z",
    "down": "M0 3.6 3.4-2.6-3.4-2.6z",
    "cross": "M-3.5-2-2-3.5 0-1.4 2-3.5 3.5-2 1.4 0 3.5 2 2 3.5 0 1.4-2 3.5-3.5 2-1.4 0z",
    "bar": "M-3.8-1.3 3.8-1.3 3.8 1.3-3.8 1.3z",
    "star": "M0-4.8 1.2-1.6 4.6-1.5 1.9 .6 2.8 3.9 0 2-2.8 3.9-1.9 .6-4.6-1.5-1.2-1.6z",
}


@dataclass(frozen=True)
class Polyline:
    """A line through places, or a shape if it is `closed` or has a `fill`."""

    points: Sequence[Place]
    colour: str = "ink"
    width: float = 2.0
    dash: Sequence[float] = ()
    closed: bool = False
    fill: str = "none"
    fill_opacity: float = 1.0
    opacity: float = 1.0
    tip: str = ""


@dataclass(frozen=True)
class Line:
    """From one place to another; `arrow` puts a head at its end."""

    start: Place
    end: Place
    colour: str = "ink"
    width: float = 1.0
    dash: Sequence[float] = ()
    opacity: float = 1.0
    arrow: bool = False
    tip: str = ""


@dataclass(frozen=True)
class Rect:
    """A rectangle from its upper left corner; `colour` is that of its edge."""

    x: float
    y: float
    width: float
    height: float
    fill: str = "none"
    opacity: float = 1.0
    colour: str = "none"
    round: float = 0.0
    tip: str = ""


@dataclass(frozen=True)
class Circle:
    """A disc or, without `fill`, a ring."""

    x: float
    y: float
    radius: float
    fill: str = "none"
    opacity: float = 1.0
    colour: str = "none"
    width: float = 1.0
    tip: str = ""


@dataclass(frozen=True)
class Points:
    """One marker of `kind` at each place, `size` times six units large; `edge` outlines it.

    `tips` has a sentence for each place, or is empty.
    """

    places: Sequence[Place]
    kind: str = "circle"
    colour: str = "s0"
    size: float = 1.0
    opacity: float = 1.0
    edge: str = "none"
    tips: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, MARKERS)
        if self.tips and len(self.tips) != len(self.places):
            raise InputError("tips", f"{len(self.tips)} of them", f"{len(self.places)}, or none")


@dataclass(frozen=True)
class Text:
    """Words with their baseline at y. `halo` keeps them readable on points; `turn` is in degrees.

    `anchor` says which part of the words is at x.
    """

    x: float
    y: float
    text: str
    size: float = 12.0
    colour: str = "soft"
    anchor: str = "start"
    bold: bool = False
    halo: bool = False
    turn: float = 0.0
    tip: str = ""

    def __post_init__(self) -> None:
        check_choice("anchor", self.anchor, ("start", "middle", "end"))


@dataclass(frozen=True)
class Picture:
    """A picture, as the bytes of a PNG file, stretched over a rectangle."""

    x: float
    y: float
    width: float
    height: float
    png: bytes
    alt: str = ""


@dataclass(frozen=True)
class Group:
    """Marks moved to (x, y) and scaled there; only what is inside `clip` is seen.

    `clip` is (left, top, width, height) in the marks' own units. `opacity` is of the whole: where
    two marks of the group overlap they do not show through each other.
    """

    marks: Sequence[Mark]
    x: float = 0.0
    y: float = 0.0
    scale: float = 1.0
    clip: tuple[float, float, float, float] | None = None
    opacity: float = 1.0


Mark = Polyline | Line | Rect | Circle | Points | Text | Picture | Group


# A chart as data: what it is called, what it says in words, its marks and its legend.

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
        from uncollapse.charts.render import legend_list

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
        from uncollapse.charts.render import figure

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
    from uncollapse.charts.render import png, svg

    path = Path(path)
    if path.suffix == ".svg":
        write_text(path, svg(chart))
    elif path.suffix == ".png":
        with written_aside(path) as aside:
            aside.write_bytes(png(chart, scale))
    else:
        raise InputError("path", repr(str(path)), "a name that ends in .svg or .png")
    return path


# Colours by name, light and dark: a mark says `s0` or `bad`, a renderer says which blue or red.

# Told apart with any colour vision, and a contrast of 3 or more on the card.
LIGHT = {
    "card": "#ffffff", "ink": "#1a1f29", "soft": "#596273", "line": "#d5d9e0", "grid": "#e9ebef",
    "good": "#11734b", "warn": "#8a5a00", "bad": "#b3261e",
    "s0": "#0b6cb3", "s1": "#c8500a", "s2": "#0b7f5f", "s3": "#a4468a",
    "s4": "#8a6d00", "s5": "#1f8fa8", "s6": "#7a2f4a", "s7": "#6b7280",
}  # fmt: skip
DARK = {
    "card": "#1b2029", "ink": "#e8ebf0", "soft": "#a5aebd", "line": "#39414f", "grid": "#2a313d",
    "good": "#4fc38f", "warn": "#e6b450", "bad": "#ff8a80",
    "s0": "#5aaef0", "s1": "#ff9256", "s2": "#3fcf9f", "s3": "#e58bc9",
    "s4": "#e0bd3f", "s5": "#62d0e6", "s6": "#d9829f", "s7": "#a3acba",
}  # fmt: skip

SERIES = 8  # colours s0 to s7; what is drawn also differs by dash, marker or label


def css_variables() -> str:
    """The rules that give each colour its value, light and dark."""
    light, dark = (
        " ".join(f"--{name}: {value};" for name, value in theme.items()) for theme in (LIGHT, DARK)
    )
    return (
        f":root {{ color-scheme: light dark; {light} }} "
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    )


def hatch(
    left: float, top: float, width: float, height: float, colour: str, *, gap: float = 7.0
) -> Group:
    """Slanted lines over a rectangle: told from a plain one without colour."""
    starts = [left + i * gap for i in range(math.ceil((width + height) / gap))]
    lines = tuple(Line((x, top), (x - height, top + height), colour) for x in starts)
    return Group(lines, clip=(left, top, width, height), opacity=0.22)


def brace(left: float, right: float, base: float, height: float, colour: str = "ink") -> Polyline:
    """A brace over [left, right] that opens downwards to `base`; its tip points up."""
    middle, waist = (left + right) / 2, base - height / 2
    bend = min(height / 2, (right - left) / 4)
    half = [
        *_bent((left, base), (left, waist), (left + bend, waist)),
        *_bent((middle - bend, waist), (middle, waist), (middle, base - height)),
    ]
    mirrored = [(left + right - x, y) for x, y in reversed(half)]
    return Polyline((*half, *mirrored), colour, 1.6)


def _bent(start: Place, control: Place, end: Place) -> list[Place]:
    """A quadratic curve."""
    weights = [((1 - t) ** 2, 2 * t * (1 - t), t**2) for t in (i / 8 for i in range(9))]
    (ax, ay), (bx, by), (cx, cy) = start, control, end
    return [(a * ax + b * bx + c * cx, a * ay + b * by + c * cy) for a, b, c in weights]
