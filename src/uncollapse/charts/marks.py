"""What a drawing is made of: shapes, markers, words and pictures, at places in its own units.

Colours are names of the theme (`s0`, `ink`, `bad`) or `#rrggbb`. `tip` is what a reader sees who
points at the mark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from uncollapse._base.check import InputError, check_choice

__all__ = [
    "DASHES", "MARKERS", "Circle", "Group", "Line", "Mark", "Picture", "Place", "Points",
    "Polyline", "Rect", "Text",
]  # fmt: skip

Place = tuple[float, float]

# A series is told by its dash and its marker as well as by its colour.
DASHES: tuple[tuple[float, ...], ...] = (
    (), (7, 4), (2, 4), (9, 3, 2, 3), (12, 5), (4, 2), (1, 5), (14, 3, 2, 3, 2, 3),
)  # fmt: skip


def _star() -> tuple[Place, ...]:
    turns = [(math.pi * (i / 5 - 0.5), 4.8 if i % 2 == 0 else 2.0) for i in range(10)]
    return tuple((round(r * math.cos(t), 2), round(r * math.sin(t), 2)) for t, r in turns)


def _round() -> tuple[Place, ...]:
    turns = [2 * math.pi * i / 24 for i in range(24)]
    return tuple((round(3 * math.cos(t), 3), round(3 * math.sin(t), 3)) for t in turns)


# Centred outlines of about six units, y downwards.
MARKERS: dict[str, tuple[Place, ...]] = {
    "circle": _round(),
    "square": ((-2.8, -2.8), (2.8, -2.8), (2.8, 2.8), (-2.8, 2.8)),
    "triangle": ((0, -3.6), (3.4, 2.6), (-3.4, 2.6)),
    "diamond": ((0, -3.9), (3.5, 0), (0, 3.9), (-3.5, 0)),
    "plus": (
        (-1, -3.6), (1, -3.6), (1, -1), (3.6, -1), (3.6, 1), (1, 1),
        (1, 3.6), (-1, 3.6), (-1, 1), (-3.6, 1), (-3.6, -1), (-1, -1),
    ),
    "down": ((0, 3.6), (3.4, -2.6), (-3.4, -2.6)),
    "cross": (
        (-3.5, -2.1), (-2.1, -3.5), (0, -1.4), (2.1, -3.5), (3.5, -2.1), (1.4, 0),
        (3.5, 2.1), (2.1, 3.5), (0, 1.4), (-2.1, 3.5), (-3.5, 2.1), (-1.4, 0),
    ),
    "bar": ((-3.8, -1.3), (3.8, -1.3), (3.8, 1.3), (-3.8, 1.3)),
    "star": _star(),
}  # fmt: skip


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
