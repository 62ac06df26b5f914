"""What a drawing is made of: shapes, markers, words and pictures, at places in its own units.

Colours are names of the theme (`s0`, `ink`, `bad`) or `#rrggbb`. `tip` is what a reader sees who
points at the mark. Each mark writes itself as SVG.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass

from uncollapse._base.check import InputError, check_choice
from uncollapse._base.table import short_id
from uncollapse.charts.text import safe_text

Place = tuple[float, float]

# Drawn at 340 units wide and shown at 300 to 416 pixels: 12 units of text stay readable.
WIDTH, HEIGHT = 340, 220

# A series is told by its dash and its marker as well as by its color.
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


# Told apart with any color vision, and a contrast of 3 or more on the card.
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
_SERIES_MARKERS = tuple(kind for kind in MARKERS if kind != "star")


@dataclass(frozen=True)
class Polyline:
    """A line through places, or a shape if it is `closed` or has a `fill`."""

    points: Sequence[Place]
    color: str = "ink"
    width: float = 2.0
    dash: Sequence[float] = ()
    closed: bool = False
    fill: str = "none"
    fill_opacity: float = 1.0
    tip: str = ""

    def svg(self) -> str:
        """The mark as SVG."""
        if not len(self.points):
            return ""
        look = _look(self.fill, self.color, self.width, dash=self.dash)
        look["fill-opacity"] = _share(self.fill_opacity)
        return _element("path", self.tip, look, d=_path(self.points) + "z" * self.closed)


@dataclass(frozen=True)
class Line:
    """From one place to another; `arrow` puts a head at its end."""

    start: Place
    end: Place
    color: str = "ink"
    width: float = 1.0
    dash: Sequence[float] = ()
    opacity: float = 1.0
    arrow: bool = False

    def svg(self) -> str:
        """The mark as SVG."""
        look = _look("none", self.color, self.width, self.opacity, self.dash)
        line = _element("path", "", look, d=_path((self.start, self.end)))
        if not self.arrow:
            return line
        (x, y), (tip_x, tip_y) = self.start, self.end
        long = min(4.0 + 2.2 * self.width, math.dist(self.start, self.end))
        turn = math.degrees(math.atan2(tip_y - y, tip_x - x))
        move = f"translate({_n(tip_x)} {_n(tip_y)}) rotate({_n(turn)})"
        outline = _path(((0, 0), (-long, -0.42 * long), (-long, 0.42 * long))) + "z"
        head = _look(self.color, "none", 0.0, self.opacity)
        return line + _element("path", "", head, d=outline, transform=move)


@dataclass(frozen=True)
class Rect:
    """A rectangle from its upper left corner; `color` is that of its edge."""

    x: float
    y: float
    width: float
    height: float
    fill: str = "none"
    opacity: float = 1.0
    color: str = "none"
    round: float = 0.0
    tip: str = ""

    def svg(self) -> str:
        """The mark as SVG."""
        look = _box(self) | _look(self.fill, self.color, 1.0, self.opacity)
        return _element("rect", self.tip, look, rx=_n(self.round) if self.round else "")


@dataclass(frozen=True)
class Points:
    """One marker of `kind` at each place, `size` times six units large; `edge` outlines it.

    `tips` has a sentence for each place, or is empty.
    """

    places: Sequence[Place]
    kind: str = "circle"
    color: str = "s0"
    size: float = 1.0
    opacity: float = 1.0
    edge: str = "none"
    tips: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, MARKERS)
        if self.tips and len(self.tips) != len(self.places):
            raise InputError("tips", f"{len(self.tips)} of them", f"{len(self.places)}, or none")

    def svg(self) -> str:
        """One path with a marker at each of its corners; places with a tip one by one."""
        if not len(self.places):
            return ""
        look = {"d": MARKERS[self.kind], **_look(self.color, self.edge, 0.7)}
        scale = f"scale({self.size:g})" if self.size != 1.0 else ""
        opacity = {"opacity": _share(self.opacity)}
        if self.tips or len(self.places) < 4:
            moves = [f"translate({_n(x)} {_n(y)}){scale}" for x, y in self.places]
            pairs = zip(moves, self.tips or [""] * len(moves), strict=True)
            look |= opacity
            return "".join(_element("path", tip, look, transform=move) for move, tip in pairs)
        key = short_id(look, scale, *self.places)
        marker = _element("path", "", look, transform=scale)
        ends = {f"marker-{at}": f"url(#{key})" for at in ("start", "mid", "end")}
        line = _element("path", "", ends | opacity, d=_path(self.places), fill="none")
        return (
            f'<defs><marker id="{key}" overflow="visible" markerUnits="userSpaceOnUse">'
            f"{marker}</marker></defs>{line}"
        )


@dataclass(frozen=True)
class Text:
    """Words with their baseline at y. `halo` keeps them readable on points; `turn` is in degrees.

    `anchor` says which part of the words is at x.
    """

    x: float
    y: float
    text: str
    size: float = 12.0
    color: str = "soft"
    anchor: str = "start"
    bold: bool = False
    halo: bool = False
    turn: float = 0.0
    tip: str = ""

    def __post_init__(self) -> None:
        check_choice("anchor", self.anchor, ("start", "middle", "end"))

    def svg(self) -> str:
        """The mark as SVG."""
        place = f'x="{_n(self.x)}" y="{_n(self.y)}"'
        if self.turn:
            place = f'transform="translate({_n(self.x)} {_n(self.y)}) rotate({self.turn:g})"'
        anchor = "" if self.anchor == "start" else f' text-anchor="{self.anchor}"'
        # As a style, so that no rule of a page's for all its text comes before it.
        style = f"font-size:{self.size:g}px;fill:{_css(self.color)}"
        style += ";font-weight:700" * self.bold
        if self.halo:
            style += ";paint-order:stroke;stroke:var(--card);stroke-width:3px;stroke-linejoin:round"
        inside = _title(self.tip) + safe_text(self.text)
        return f'<text {place}{anchor} style="{style}">{inside}</text>'


@dataclass(frozen=True)
class Picture:
    """A picture, as the bytes of a PNG file, stretched over a rectangle."""

    x: float
    y: float
    width: float
    height: float
    png: bytes
    alt: str = ""

    def svg(self) -> str:
        """The mark as SVG."""
        href = f"data:image/png;base64,{base64.b64encode(self.png).decode()}"
        return _element("image", self.alt, _box(self), preserveAspectRatio="none", href=href)


@dataclass(frozen=True)
class Group:
    """Marks moved to (x, y); clipped to `clip` if given.

    `clip` is (left, top, width, height) in the marks' own units. `opacity` is of the whole: where
    two marks of the group overlap they do not show through each other.
    """

    marks: Sequence[Mark]
    x: float = 0.0
    y: float = 0.0
    clip: tuple[float, float, float, float] | None = None
    opacity: float = 1.0

    def svg(self) -> str:
        """The mark as SVG."""
        inside = drawn(self.marks)
        if self.clip is not None:
            left, top, width, height = map(_n, self.clip)
            inside = (
                f'<svg x="{left}" y="{top}" width="{width}" height="{height}" '
                f'viewBox="{left} {top} {width} {height}" overflow="hidden">{inside}</svg>'
            )
        move = f"translate({_n(self.x)} {_n(self.y)})" * bool(self.x or self.y)
        attributes = {"transform": move, "opacity": _share(self.opacity)}
        return f"<g{_written(attributes)}>{inside}</g>" if any(attributes.values()) else inside


Mark = Polyline | Line | Rect | Points | Text | Picture | Group


def drawn(marks: Sequence[Mark]) -> str:
    """The marks as SVG, one over the other."""
    return "".join(mark.svg() for mark in marks)


def css_variables() -> str:
    """The rules that give each color its value, light and dark."""
    themes = ([f"--{name}: {value};" for name, value in theme.items()] for theme in (LIGHT, DARK))
    light, dark = map(" ".join, themes)
    return (
        f":root {{ color-scheme: light dark; {light} }} "
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    )


def line_look(i: int) -> tuple[Mark, ...]:
    """How the i-th line is drawn, for a legend."""
    color, dash = f"s{i % SERIES}", DASHES[i % len(DASHES)]
    return Line((1, 7), (29, 7), color, 2.0, dash), Points(((15, 7),), marker_kind(i), color)


def marker_kind(i: int) -> str:
    """The marker of the i-th series; where colours begin again, another than that color had.

    >>> marker_kind(0), marker_kind(8)
    ('circle', 'square')
    """
    return _SERIES_MARKERS[(i + i // SERIES) % len(_SERIES_MARKERS)]


def hatch(
    left: float, top: float, width: float, height: float, color: str, *, gap: float = 7.0
) -> Group:
    """Slanted lines over a rectangle, to tell it from a plain one without color."""
    starts = [left + i * gap for i in range(math.ceil((width + height) / gap))]
    lines = tuple(Line((x, top), (x - height, top + height), color) for x in starts)
    return Group(lines, clip=(left, top, width, height), opacity=0.22)


def brace(left: float, right: float, base: float, height: float, color: str = "ink") -> Polyline:
    """A brace over [left, right] that opens downwards to `base`; its tip points up."""
    middle, waist = (left + right) / 2, base - height / 2
    bend = min(height / 2, (right - left) / 4)
    half = [
        *_bent((left, base), (left, waist), (left + bend, waist)),
        *_bent((middle - bend, waist), (middle, waist), (middle, base - height)),
    ]
    mirrored = [(left + right - x, y) for x, y in reversed(half)]
    return Polyline((*half, *mirrored), color, 1.6)


def _bent(start: Place, control: Place, end: Place) -> list[Place]:
    """A quadratic curve."""
    weights = [((1 - t) ** 2, 2 * t * (1 - t), t**2) for t in (i / 8 for i in range(9))]
    (ax, ay), (bx, by), (cx, cy) = start, control, end
    return [(a * ax + b * bx + c * cx, a * ay + b * by + c * cy) for a, b, c in weights]


def _box(mark: Rect | Picture) -> dict[str, str]:
    return {key: _n(getattr(mark, key)) for key in ("x", "y", "width", "height")}


def _look(
    fill: str, color: str, width: float, opacity: float = 1.0, dash: Sequence[float] = ()
) -> dict[str, str]:
    look = {"fill": _css(fill), "opacity": _share(opacity)}
    if color != "none":
        ends = "round" if width > 1.2 and not dash else ""
        pattern = " ".join(f"{part:g}" for part in dash)
        look |= {"stroke": _css(color), "stroke-width": f"{width:g}", "stroke-dasharray": pattern}
        look |= {"stroke-linejoin": ends, "stroke-linecap": ends}
    return look


def _element(name: str, tip: str, look: dict[str, str], **attributes: str) -> str:
    inside = f"{name}{_written(attributes | look)}"
    return f"<{inside}>{_title(tip)}</{name}>" if tip else f"<{inside}/>"


def _written(attributes: dict[str, str]) -> str:
    """Attributes that are not empty."""
    return "".join(f' {key}="{value}"' for key, value in attributes.items() if value)


def _title(tip: str) -> str:
    return f"<title>{safe_text(tip)}</title>" if tip else ""


def _css(color: str) -> str:
    """A variable for a name of the theme; `#rrggbb` and `none` as they are."""
    return f"var(--{color})" if color in LIGHT else color


def _share(value: float) -> str:
    return "" if value == 1.0 else f"{value:g}"


def _path(places: Sequence[Place]) -> str:
    return "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in places)


def _n(value: float) -> str:
    """A place to a hundredth of a unit."""
    return f"{round(float(value), 2):g}" if abs(value) < 1e4 else f"{value:.0f}"
