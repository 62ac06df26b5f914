"""Two axes and what is drawn between them: lines, bands, markers and words at values of x and y."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from uncollapse.charts.chart import HEIGHT, WIDTH
from uncollapse.charts.marks import Group, Line, Mark, Place, Points, Polyline, Rect, Text
from uncollapse.charts.numbers import percent, tick_text
from uncollapse.charts.scales import Scale
from uncollapse.charts.text import fitting_size, text_width

__all__ = ["Axes", "area", "thinned"]

_MOST = 300  # points of a line; more would not be seen


def area(width: float = WIDTH, height: float = HEIGHT, *, y_label: bool = False) -> tuple[
    tuple[float, float], tuple[float, float]
]:  # fmt: skip
    """Where x runs and where y runs in a drawing of this size: room is left for the numbers."""
    return (62.0 if y_label else 46.0, width - 16.0), (height - 36.0, 18.0)


@dataclass(frozen=True)
class Axes:
    """A plot area with its two scales; every method gives marks.

    >>> axes = Axes(Scale(0, 10, 0, 100), Scale(0, 1, 50, 0))
    >>> axes.at(5, 0.5), axes.line([0, 10], [0, 1], "s0").points
    ((50.0, 25.0), ((0.0, 50.0), (100.0, 0.0)))
    """

    x: Scale
    y: Scale

    def at(self, x: float, y: float) -> Place:
        """The place of two values."""
        return self.x(x), self.y(y)

    def frame(
        self,
        x_label: str = "",
        y_label: str = "",
        *,
        x_ticks: Mapping[float, str] | None = None,
        y_ticks: Mapping[float, str] | None = None,
        share: bool = False,
    ) -> tuple[Mark, ...]:
        """Grid, numbers and titles. Ticks are value and text; round ones if none are given.

        `share` writes the values of y in per cent. Of ticks of x that are given, those for which
        there is no room keep their stroke and lose their text.
        """
        left, right, bottom, top = self.x.start, self.x.end, self.y.start, self.y.end
        say: Callable[[float], str] = percent if share else tick_text
        if y_ticks is None:
            most = max(3, round(abs(top - bottom) / 33))
            y_ticks = {value: say(value) for value in self.y.ticks(most)}
        if x_ticks is None:
            most = max(3, round(abs(right - left) / 46))
            x_ticks = {value: tick_text(value) for value in self.x.ticks(most)}
        marks: list[Mark] = []
        for value, text in y_ticks.items():
            marks.append(Line((left, self.y(value)), (right, self.y(value)), "grid"))
            marks.append(Text(left - 6, self.y(value) + 4, text, anchor="end"))
        free = -math.inf
        for value, text in sorted(x_ticks.items()):
            at, half = self.x(value), text_width(text) / 2
            marks.append(Line((at, bottom), (at, bottom + 4), "soft"))
            if at - half >= free + 4:
                marks.append(Text(at, bottom + 17, text, anchor="middle"))
                free = at + half
        marks.append(Line((left, bottom), (right, bottom), "soft"))
        if x_label:
            marks.append(Text((left + right) / 2, bottom + 32, x_label, anchor="middle"))
        if y_label:
            middle, room = (top + bottom) / 2, abs(top - bottom) + 20
            aside = max((text_width(text) for text in y_ticks.values()), default=0.0)
            size = fitting_size(y_label, room, least=9.0)
            at = left - 14 - aside
            marks.append(Text(at, middle, y_label, size, anchor="middle", turn=-90))
        return tuple(marks)

    def inside(self, *marks: Mark) -> Group:
        """Marks of which only what is between the axes is seen."""
        left, top = min(self.x.start, self.x.end), min(self.y.start, self.y.end)
        size = abs(self.x.end - self.x.start), abs(self.y.end - self.y.start)
        return Group(marks, clip=(left, top, *size))

    def line(
        self,
        x: Sequence[float],
        y: Sequence[float],
        colour: str,
        *,
        dash: Sequence[float] = (),
        width: float = 2.0,
        tip: str = "",
    ) -> Polyline:
        """A line through values, thinned to what can be seen; those not finite are left out."""
        pairs = zip(x, y, strict=True)
        places = [self.at(a, b) for a, b in pairs if math.isfinite(a) and math.isfinite(b)]
        return Polyline(tuple(thinned(places)), colour, width, dash, tip=tip)

    def band(
        self, x: Sequence[float], low: Sequence[float], high: Sequence[float], colour: str
    ) -> Polyline:
        """The area between two lines, faint."""
        there = [self.at(a, b) for a, b in zip(x, high, strict=True) if math.isfinite(b)]
        back = [self.at(a, b) for a, b in zip(x, low, strict=True) if math.isfinite(b)]
        outline = (*there, *reversed(back))
        return Polyline(outline, "none", 0, closed=True, fill=colour, fill_opacity=0.15)

    def points(
        self,
        x: Sequence[float],
        y: Sequence[float],
        kind: str = "circle",
        colour: str = "s0",
        *,
        size: float = 1.0,
        opacity: float = 1.0,
        tips: Sequence[str] = (),
    ) -> Points:
        """A marker at each pair of values."""
        places = tuple(self.at(a, b) for a, b in zip(x, y, strict=True))
        return Points(places, kind, colour, size, opacity, tips=tips)

    def error_bar(self, x: float, low: float, high: float, colour: str) -> Polyline:
        """A stroke from low to high with a foot at each end."""
        at, bottom, top = self.x(x), self.y(low), self.y(high)
        feet = ((at - 4, bottom), (at + 4, bottom), (at, bottom), (at, top))
        return Polyline((*feet, (at - 4, top), (at + 4, top)), colour, 1.6)

    def across(self, y: float, colour: str = "soft", dash: Sequence[float] = (2, 4)) -> Line:
        """A line at a value of y, over the whole width."""
        return Line((self.x.start, self.y(y)), (self.x.end, self.y(y)), colour, 1.3, dash)

    def upright(self, x: float, colour: str = "ink", dash: Sequence[float] = (2, 3)) -> Line:
        """A line at a value of x, over the whole height."""
        return Line((self.x(x), self.y.end), (self.x(x), self.y.start), colour, 1.2, dash)

    def rows(self, low: float, high: float, colour: str, opacity: float = 0.13) -> Rect:
        """The stripe between two values of y."""
        top, bottom = sorted((self.y(low), self.y(high)))
        left, right = self.x.start, self.x.end
        return Rect(left, top, right - left, bottom - top, colour, opacity)

    def columns(self, low: float, high: float, colour: str, opacity: float = 0.13) -> Rect:
        """The stripe between two values of x."""
        left, right = sorted((self.x(low), self.x(high)))
        top, bottom = self.y.end, self.y.start
        return Rect(left, top, right - left, bottom - top, colour, opacity)


def thinned(places: Sequence[Place]) -> list[Place]:
    """Fewer places, with the highest and lowest of each stretch kept: a spike stays visible."""
    if len(places) <= _MOST:
        return list(places)
    size = math.ceil(len(places) / (_MOST // 2))
    kept: list[Place] = []
    for start in range(0, len(places), size):
        part = places[start : start + size]
        heights = [y for _, y in part]
        ends = {heights.index(min(heights)), heights.index(max(heights))}
        kept += [part[j] for j in sorted(ends)]
    return [places[0], *kept, places[-1]]
