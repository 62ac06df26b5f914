"""Two axes and what is drawn between them: lines, bands, markers and words at values of x and y."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from uncollapse._base.table import percent
from uncollapse.charts.marks import HEIGHT, WIDTH, Group, Line, Mark, Place, Polyline, Rect, Text
from uncollapse.charts.text import fitting_size, text_width, tick_text, tick_texts

Values = Sequence[float]
_LEAST = 1e-300
_MOST = 300  # points of a line; more would not be seen


@dataclass(frozen=True)
class Scale:
    """From values in [low, high] to places in [start, end]; linear, or logarithmic.

    >>> Scale(0.0, 10.0, 0.0, 100.0)(2.5), Scale(1.0, 100.0, 0.0, 100.0, log=True)(10.0)
    (25.0, 50.0)
    >>> Scale(0.0, 1.0, 0, 1).ticks(), Scale(1e-4, 2.0, 0, 1, log=True).ticks()
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0001, 0.001, 0.01, 0.1, 1.0])
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The place of a value, to a tenth of a unit."""
        at, low, high = value, self.low, self.high
        if self.log:
            at, low, high = (math.log10(max(x, _LEAST)) for x in (at, low, high))
        share = (at - low) / ((high - low) or 1.0)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values inside the range."""
        return (self._decades(most) if self.log else []) or self._steps(most)

    @classmethod
    def around(
        cls,
        values: Iterable[float],
        start: float,
        end: float,
        *,
        log: bool | None = False,
        zero: bool = False,
    ) -> Scale:
        """A scale that holds all finite values; `log=None` decides by their range.

        `zero` includes 0. Values of a logarithmic scale that are not above 0 have no place on it.
        """
        known = finite(values)
        low, high = min(known, default=0.0), max(known, default=1.0)
        if log is None:
            log = low > 0 and high / low > 50
        if log:
            above = [value for value in known if value > 0]
            low, high = min(above, default=0.1), max(above, default=1.0)
            return cls(low / 1.2, high * 1.2, start, end, log=True)
        low = min(low, 0.0) if zero else low
        pad = 0.05 * (high - low) or max(abs(high) * 0.1, 1e-12)
        return cls(low if zero and low == 0 else low - pad, high + pad, start, end)

    def _decades(self, most: int) -> list[float]:
        first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
        every = max(1, math.ceil((last - first + 1) / most))
        decades = [10.0**e for e in range(first, last + 1, every)]
        if len(decades) < 3:  # 2 and 5 times a power of ten as well
            between = [float(f"{m}e{e}") for e in range(first - 1, last + 1) for m in (1, 2, 5)]
            decades = [value for value in between if self.low <= value <= self.high]
        return decades if len(decades) > 1 else []

    def _steps(self, most: int) -> list[float]:
        span = (self.high - self.low) or 1.0
        size = 10.0 ** math.floor(math.log10(span / most))
        step = next(m * size for m in (1, 2, 5, 10) if span / (m * size) <= most)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        digits = max(0, 1 - math.floor(math.log10(step)))
        return [round(i * step, digits) for i in range(first, last + 1)]


def finite(values: Iterable[float]) -> list[float]:
    """The finite ones of the values."""
    return [float(value) for value in values if math.isfinite(value)]


def area(
    width: float = WIDTH, height: float = HEIGHT, *, y_label: bool = False
) -> tuple[Place, Place]:
    """The ranges of x and y in a drawing of this size; room is left for the numbers."""
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

        `share` writes the values of y in per cent. Given ticks of x that have
        no room keep their stroke and lose their text.
        """
        left, right, bottom, top = self.x.start, self.x.end, self.y.start, self.y.end
        if y_ticks is None:
            values = self.y.ticks(max(3, round(abs(top - bottom) / 33)))
            y_ticks = tick_texts(values, percent if share else tick_text)
        if x_ticks is None:
            x_ticks = tick_texts(self.x.ticks(max(3, round(abs(right - left) / 46))))
        marks: list[Mark] = []
        for value, text in y_ticks.items():
            marks.append(Line((left, self.y(value)), (right, self.y(value)), "grid"))
            size = fitting_size(text, left - 8, least=9.0)
            marks.append(Text(left - 6, self.y(value) + 4, text, size, anchor="end"))
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
            at = left - 14 - max(map(text_width, y_ticks.values()), default=0.0)
            size = fitting_size(y_label, room, least=9.0)
            marks.append(Text(at, middle, y_label, size, anchor="middle", turn=-90))
        return tuple(marks)

    def inside(self, *marks: Mark) -> Group:
        """Marks clipped to the area between the axes."""
        left, top = min(self.x.start, self.x.end), min(self.y.start, self.y.end)
        size = abs(self.x.end - self.x.start), abs(self.y.end - self.y.start)
        return Group(marks, clip=(left, top, *size))

    def line(
        self, x: Values, y: Values, color: str, dash: Values = (), width: float = 2, tip: str = ""
    ) -> Polyline:
        """A line through values, thinned to what can be seen; those not finite are left out."""
        return Polyline(tuple(_thinned(self.places(x, y))), color, width, dash, tip=tip)

    def band(self, x: Values, low: Values, high: Values, color: str) -> Polyline:
        """The area between two lines, faint."""
        outline = (*self.places(x, high), *reversed(self.places(x, low)))
        return Polyline(outline, "none", 0, closed=True, fill=color, fill_opacity=0.15)

    def places(self, x: Values, y: Values) -> tuple[Place, ...]:
        """The places of pairs of values, for markers; those not finite are left out."""
        pairs = zip(x, y, strict=True)
        return tuple(self.at(a, b) for a, b in pairs if math.isfinite(a) and math.isfinite(b))

    def error_bar(self, x: float, low: float, high: float, color: str) -> Polyline:
        """A stroke from low to high with a foot at each end."""
        at, bottom, top = self.x(x), self.y(low), self.y(high)
        feet = ((at - 4, bottom), (at + 4, bottom), (at, bottom), (at, top))
        return Polyline((*feet, (at - 4, top), (at + 4, top)), color, 1.6)

    def across(self, y: float, color: str = "soft", dash: Values = (2, 4)) -> Line:
        """A line at a value of y, over the whole width."""
        return Line((self.x.start, self.y(y)), (self.x.end, self.y(y)), color, 1.3, dash)

    def upright(self, x: float, color: str = "ink", dash: Values = (2, 3)) -> Line:
        """A line at a value of x, over the whole height."""
        return Line((self.x(x), self.y.end), (self.x(x), self.y.start), color, 1.2, dash)

    def columns(self, low: float, high: float, color: str, opacity: float = 0.13) -> Rect:
        """The stripe between two values of x."""
        left, right = sorted((self.x(low), self.x(high)))
        return Rect(left, self.y.end, right - left, self.y.start - self.y.end, color, opacity)


def _thinned(places: Sequence[Place]) -> list[Place]:
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
