"""Outlines that both renderers draw: dashes, arrow heads, hatches and braces, as plain places."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from uncollapse.charts.marks import Group, Line, Place, Polyline

__all__ = ["arrow_head", "brace", "dashed", "hatch"]


def arrow_head(line: Line) -> list[Place]:
    """The triangle at the end of a line; as long as the line at most."""
    (x, y), (tip_x, tip_y) = line.start, line.end
    length = math.hypot(tip_x - x, tip_y - y)
    if length == 0:
        return [line.end]
    along = (tip_x - x) / length, (tip_y - y) / length
    long = min(4.0 + 2.2 * line.width, length)
    wide = 0.42 * long
    back = tip_x - long * along[0], tip_y - long * along[1]
    return [
        (tip_x, tip_y),
        (back[0] - wide * along[1], back[1] + wide * along[0]),
        (back[0] + wide * along[1], back[1] - wide * along[0]),
    ]


def dashed(points: Sequence[Place], dash: Sequence[float]) -> Iterator[list[Place]]:
    """The pieces of a line that a dash pattern draws.

    >>> list(dashed([(0.0, 0.0), (10.0, 0.0)], (4, 2)))
    [[(0.0, 0.0), (4.0, 0.0)], [(6.0, 0.0), (10.0, 0.0)]]
    """
    place, left, drawing = 0, float(dash[0]), True
    piece = [points[0]]
    for (x, y), (to_x, to_y) in pairwise(points):
        length, done = math.hypot(to_x - x, to_y - y), 0.0
        while length - done > left:
            done += left
            at = x + (to_x - x) * done / length, y + (to_y - y) * done / length
            if drawing:
                yield [*piece, at]
            drawing, place = not drawing, (place + 1) % len(dash)
            piece, left = [at], float(dash[place]) or 0.01
        left -= length - done
        if drawing:
            piece.append((to_x, to_y))
    if drawing and len(piece) > 1:
        yield piece


def hatch(
    left: float, top: float, width: float, height: float, colour: str, *, gap: float = 7.0
) -> Group:
    """Slanted lines over a rectangle: told from a plain one without colour."""
    lines = []
    for i in range(math.ceil((width + height) / gap)):
        x = left + i * gap
        lines.append(Line((x, top), (x - height, top + height), colour, 1.0))
    return Group(tuple(lines), clip=(left, top, width, height), opacity=0.22)


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
    found = []
    for i in range(9):
        t = i / 8
        a, b, c = (1 - t) ** 2, 2 * t * (1 - t), t**2
        x = a * start[0] + b * control[0] + c * end[0]
        found.append((x, a * start[1] + b * control[1] + c * end[1]))
    return found
