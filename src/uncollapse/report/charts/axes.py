"""The frame of a chart: scales with round ticks, grid, axis titles, and the figure around it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from uncollapse.report.markup import Html, esc, join, number, short_id
from uncollapse.report.markup import percent as say_percent

__all__ = ["DASHES", "MARKS", "Frame", "Scale", "figure", "legend", "mark"]

# Drawn at 340 units wide and shown at 300 to 416 pixels: 12 units of text stay readable.
WIDTH, HEIGHT = 340, 220

_NOTHING = Html("")

# A series is told by its dash and its mark as well as by its colour.
DASHES = ("", "7 4", "2 4", "9 3 2 3", "12 5", "4 2", "1 5", "14 3 2 3 2 3")
MARKS = {  # centred paths of about six units
    "circle": "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z",
    "square": "M-2.8-2.8h5.6v5.6h-5.6z",
    "triangle": "M0-3.6L3.4 2.6H-3.4z",
    "diamond": "M0-3.9L3.5 0L0 3.9L-3.5 0z",
    "plus": "M-1-3.6h2v2.6h2.6v2h-2.6v2.6h-2v-2.6h-2.6v-2h2.6z",
    "down": "M0 3.6L3.4-2.6H-3.4z",
    "cross": "M-3.5-2.1L-2.1-3.5L0-1.4L2.1-3.5L3.5-2.1L1.4 0L3.5 2.1L2.1 3.5L0 1.4L-2.1 3.5L-3.5 2.1L-1.4 0z",  # noqa: E501
    "bar": "M-3.8-1.3h7.6v2.6h-7.6z",
}


@dataclass(frozen=True)
class Scale:
    """From values in [low, high] to places in [start, end], linear or logarithmic.

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
        low, high = self._inner(self.low), self._inner(self.high)
        share = (self._inner(value) - low) / ((high - low) or 1.0)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values inside the range."""
        if self.log:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            every = max(1, math.ceil((last - first + 1) / most))
            found = [10.0**e for e in range(first, last + 1, every)]
            if len(found) > 1:
                return found
        span = (self.high - self.low) or 1.0
        size = 10.0 ** math.floor(math.log10(span / most))
        step = next(m * size for m in (1, 2, 5, 10) if span / (m * size) <= most)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        digits = max(0, 1 - math.floor(math.log10(step)))
        return [round(i * step, digits) for i in range(first, last + 1)]

    def _inner(self, value: float) -> float:
        return math.log10(max(value, 1e-300)) if self.log else value

    @classmethod
    def around(
        cls,
        values: Sequence[float],
        start: float,
        end: float,
        *,
        log: bool | None = False,
        zero: bool = False,
    ) -> Scale:
        """A scale that holds all values; `log=None` decides by their range, `zero` includes 0."""
        low, high = min(values, default=0.0), max(values, default=1.0)
        if log is None:
            log = low > 0 and high / low > 50
        if log:
            return cls(low / 1.2, high * 1.2, start, end, log=True)
        low = min(low, 0.0) if zero else low
        pad = 0.05 * (high - low) or max(abs(high) * 0.1, 1e-12)
        return cls(low if zero and low == 0 else low - pad, high + pad, start, end)


@dataclass(frozen=True)
class Frame:
    """The plot area with its two scales."""

    x: Scale
    y: Scale
    height: int = HEIGHT

    @staticmethod
    def area(height: int = HEIGHT) -> tuple[tuple[int, int], tuple[int, int]]:
        """Where x runs and where y runs: room is left for the numbers."""
        return (46, WIDTH - 16), (height - 36, 18)

    def axes(self, x_label: str, *, x_ticks: bool = True, percent: bool = False) -> Html:
        """Grid, numbers and the title of the x axis (the figure's caption names y)."""
        left, right, bottom = self.x.start, self.x.end, self.y.start
        parts = []
        for value in self.y.ticks(5):
            at = self.y(value)
            text = say_percent(value) if percent else _tick(value)
            parts.append(f'<path class="grid-line" d="M{left} {at}H{right}"/>')
            parts.append(f'<text x="{left - 6}" y="{at + 4}" text-anchor="end">{text}</text>')
        for value in self.x.ticks(6) if x_ticks else ():
            at = self.x(value)
            parts.append(f'<path class="axis" d="M{at} {bottom}v4"/>')
            parts.append(
                f'<text x="{at}" y="{bottom + 17}" text-anchor="middle">{_tick(value)}</text>'
            )
        parts.append(f'<path class="axis" d="M{left} {bottom}H{right}"/>')
        middle = (left + right) / 2
        parts.append(
            f'<text x="{middle}" y="{bottom + 32}" text-anchor="middle">{esc(x_label)}</text>'
        )
        return Html("".join(parts))


def figure(
    title: str,
    description: str,
    body: Html,
    *,
    small: str = "",
    below: Html = _NOTHING,
    height: int = HEIGHT,
    kind: str = "chart",
) -> Html:
    """A captioned drawing; `description` is what it shows, in words, for who does not see it."""
    name = short_id(title, description, body)
    caption = f"{esc(title)}{f'<small>{esc(small)}</small>' * bool(small)}"
    return Html(
        f'<figure class="{kind}"><figcaption>{caption}</figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{esc(title)}</title><desc id="{name}-d">{esc(description)}</desc>'
        f"{body}</svg>{below}</figure>"
    )


def legend(entries: Iterable[tuple[str, Html]]) -> Html:
    """Names with a sample of how they are drawn (30 × 14 units)."""
    items = join(
        Html(f'<li><svg viewBox="0 0 30 14" aria-hidden="true">{drawn}</svg>{esc(name)}</li>')
        for name, drawn in entries
    )
    return Html(f'<ul class="legend">{items}</ul>') if items else Html("")


def mark(kind: str, x: float, y: float, colour: int, size: float = 1.0) -> Html:
    """One mark of a kind in the colour of a series."""
    scale = f" scale({size:g})" if size != 1.0 else ""
    return Html(
        f'<path d="{MARKS[kind]}" transform="translate({x:g} {y:g}){scale}" '
        f'fill="var(--s{colour})"/>'
    )


def _tick(value: float) -> str:
    """A short number: there is room for six signs beside an axis."""
    if 0 < abs(value) < 0.001:
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value / 1000:g}k" if abs(value) >= 10_000 else number(value)
