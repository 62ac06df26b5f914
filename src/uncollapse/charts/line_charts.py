"""Lines over steps with their events, bars, and distributions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from uncollapse._base import table
from uncollapse._base.table import number
from uncollapse.charts.axes import Axes, Scale, area, finite
from uncollapse.charts.chart import Chart, Entry, empty
from uncollapse.charts.marks import (
    DASHES,
    HEIGHT,
    MARKERS,
    SERIES,
    WIDTH,
    Line,
    Mark,
    Place,
    Points,
    Polyline,
    Rect,
    Text,
)

__all__ = ["Event", "Series", "bars", "curves", "histogram", "line_look", "marker_kind"]


_KINDS = tuple(kind for kind in MARKERS if kind != "star")


@dataclass(frozen=True)
class Series:
    """A line: its name, and values over x. Values that are not finite are left out.

    `low` and `high`, if given, are the edges of a band around it, such as a spread over seeds.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True)
class Event:
    """Something that happened at x; `flag` is a short sign that a list explains."""

    x: float
    flag: str
    text: str


def curves(
    title: str,
    series: Sequence[Series],
    *,
    events: Sequence[Event] = (),
    x_label: str = "step",
    y_label: str = "",
    x_ticks: Mapping[float, str] | None = None,
    note: str = "",
    log: bool | None = None,
    percent: bool = False,
    zero: bool = True,
    width: float = WIDTH,
    height: float = HEIGHT,
) -> Chart:
    """Lines told apart by colour, dash and marker. `log=None`: logarithmic if the range is wide.

    `x_ticks` are value and text; round values if none are given. With `percent` y is a share of
    one, written in per cent; with `zero` values that are none of them negative start at 0.

    >>> chart = curves("loss", [Series("a", [0, 10, 20], [1.0, 0.5, 0.25])])
    >>> chart.description
    'a: from 1 to 0.25, lowest 0.25, highest 1'
    """
    kept = [_kept(one) for one in series]
    values = [v for one in kept for v in (*one.y, *finite(one.low), *finite(one.high))]
    steps = [v for one in kept for v in one.x] + [e.x for e in events if math.isfinite(e.x)]
    if not values:
        return empty(title, "There are no finite values to draw.", note=note)
    across, up = area(width, height, y_label=bool(y_label))
    x = Scale(min(steps), max(max(steps), min(steps) + 1e-9), *across)
    y = Scale.around(
        values, *up, log=False if percent else log, zero=zero and (percent or min(values) >= 0)
    )
    if percent:
        y = Scale(0.0, max(1.0, max(values)), *up)
    axes = Axes(x, y)
    marks: list[Mark] = [*axes.frame(x_label, y_label, x_ticks=x_ticks, share=percent)]
    marks += _events(axes, events)
    for i, one in enumerate(kept):
        if one.low and one.high:
            marks.append(axes.band(one.x, one.low, one.high, f"s{i % SERIES}"))
    for i, one in enumerate(kept):
        marks += _line(axes, one, i)
    words = [_words(one) for one in kept]
    words += [f"{e.flag} at {number(e.x)}: {e.text}" for e in events]
    names = [Entry(one.name, line_look(i)) for i, one in enumerate(kept) if one.y]
    notes = [part for part in (note, "logarithmic scale" * y.log) if part]
    legend = tuple(names) if len(kept) > 1 else ()
    return Chart(title, ". ".join(words), tuple(marks), width, height, ", ".join(notes), legend)


def line_look(i: int) -> tuple[Mark, ...]:
    """How the i-th line is drawn, for a legend."""
    colour, dash = f"s{i % SERIES}", DASHES[i % len(DASHES)]
    return Line((1, 7), (29, 7), colour, 2.0, dash), Points(((15, 7),), marker_kind(i), colour)


def marker_kind(i: int) -> str:
    """The marker of the i-th series; where colours begin again, another than that colour had.

    >>> marker_kind(0), marker_kind(8)
    ('circle', 'square')
    """
    return _KINDS[(i + i // SERIES) % len(_KINDS)]


def _kept(one: Series) -> Series:
    rows = zip(one.x, one.y, one.low or one.y, one.high or one.y, strict=True)
    known = [row for row in rows if math.isfinite(row[0]) and math.isfinite(row[1])]
    x, y, low, high = ([float(row[k]) for row in known] for k in range(4))
    return Series(one.name, x, y, low if one.low else (), high if one.high else ())


def _words(one: Series) -> str:
    if not one.y:
        return f"{one.name}: no values"
    return (
        f"{one.name}: from {number(one.y[0])} to {number(one.y[-1])}, "
        f"lowest {number(min(one.y))}, highest {number(max(one.y))}"
    )


def _line(axes: Axes, one: Series, i: int) -> list[Mark]:
    if not one.x:
        return []
    colour = f"s{i % SERIES}"
    line = axes.line(one.x, one.y, colour, dash=DASHES[i % len(DASHES)], tip=_words(one))
    places = line.points
    shown = sorted({round(j * (len(places) - 1) / 7) for j in range(8)})
    return [line, Points(tuple(places[j] for j in shown), marker_kind(i), colour)]


def _events(axes: Axes, events: Sequence[Event]) -> list[Mark]:
    """A line at each event; those too near each other share a flag."""
    top = axes.y.end
    groups: list[list[Event]] = []
    for event in sorted(events, key=lambda e: e.x):
        if groups and axes.x(event.x) - axes.x(groups[-1][0].x) < 22:
            groups[-1].append(event)
        else:
            groups.append([event])
    marks: list[Mark] = [axes.upright(e.x) for e in events]
    for group in groups:
        flag = _shared_flag([event.flag for event in group])
        at, wide = axes.x(group[0].x), 7.0 + 7.0 * len(flag)
        tip = "; ".join(f"{e.flag} at {number(e.x)}: {e.text}" for e in group)
        marks.append(Rect(at - wide / 2, top - 15, wide, 15, "ink", round=4, tip=tip))
        marks.append(Text(at, top - 4, flag, 11, "card", "middle", bold=True, tip=tip))
    return marks


def _shared_flag(flags: Sequence[str]) -> str:
    """What a flag says for several events; a run of numbers is a range.

    >>> _shared_flag(["1", "2", "3"]), _shared_flag(["5", "1", "2"]), _shared_flag(["a", "b"])
    ('1–3', '1,2,5', 'a,b')
    """
    if not all(flag.isdigit() for flag in flags):
        return ",".join(flags)
    numbers = sorted({int(flag) for flag in flags})
    if 0 < numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]}–{numbers[-1]}"
    return ",".join(map(str, numbers))


def bars(
    title: str,
    values: Sequence[float],
    *,
    x_label: str,
    note: str = "",
    split: tuple[int, str] | None = None,
    percent: bool = False,
) -> Chart:
    """Values numbered from 1. `split=(n, text)` draws a line after the n-th with a text at it.

    >>> bars("spectrum", [0.75, 0.25], x_label="axis").description
    '2 values, first 1: 0.75, 2: 0.25'
    """
    known = finite(values)
    if not known:
        return empty(title, "There are no finite values to draw.", note=note)
    across, up = area()
    count = len(values)
    largest = max(known) if max(known) > 0 else 1.0  # zeros alone: an ordinary axis
    low, high = min(0.0, 1.08 * min(known)), largest * 1.08
    axes = Axes(Scale(0.5, count + 0.5, *across), Scale(low, high, *up))
    step = max(1, round(count / 8))
    numbered = {float(i): str(i) for i in range(1, count + 1, step)}
    marks: list[Mark] = list(axes.frame(x_label, x_ticks=numbered, share=percent))
    room, say = (across[1] - across[0]) / count, table.percent if percent else number
    for i, value in enumerate(values, 1):
        if math.isfinite(value):
            top, bottom = sorted((axes.y(value), axes.y(0.0)))
            left, tip = axes.x(i) - 0.4 * room, f"{i}: {say(value)}"
            marks.append(Rect(left, top, 0.8 * room, bottom - top, "s0", tip=tip))
    if split is not None and split[0] < count:
        marks.append(axes.upright(split[0] + 0.5))
        at, right = axes.x(split[0] + 0.5), split[0] > count / 2
        side, anchor = (at - 6, "end") if right else (at + 6, "start")
        marks.append(Text(side, axes.y.end + 10, split[1], anchor=anchor, halo=True))
    first = ", ".join(f"{i}: {number(v)}" for i, v in enumerate(values[:10], 1))
    words = f"{count} values, first {first}" + (f"; {split[1]}" if split else "")
    return Chart(title, words, tuple(marks), note=note)


class _Binned(Protocol):
    """Counts between edges, of which there is one more."""

    @property
    def edges(self) -> Sequence[float]:
        """Where the bins begin and end."""

    @property
    def counts(self) -> Sequence[int]:
        """How many are in each bin."""


def histogram(title: str, kinds: Mapping[str, _Binned], *, x_label: str, note: str = "") -> Chart:
    """Shares of each kind between its edges: the first filled, the others outlined and dashed."""
    kinds = {name: one for name, one in kinds.items() if sum(one.counts)}
    if not kinds:
        return empty(title, "There is nothing to count.", note=note)
    across, up = area()
    shares = {name: [c / sum(one.counts) for c in one.counts] for name, one in kinds.items()}
    edges = [edge for one in kinds.values() for edge in one.edges]
    tallest = max(max(values) for values in shares.values())
    axes = Axes(Scale(min(edges), max(edges), *across), Scale(0.0, 1.08 * tallest, *up))
    marks: list[Mark] = list(axes.frame(x_label, share=True))
    words = []
    for i, (name, values) in enumerate(shares.items()):
        best = values.index(max(values))
        low, high = kinds[name].edges[best : best + 2]
        message = (
            f"{name}: most between {number(low)} and {number(high)} ({table.percent(values[best])})"
        )
        marks.append(_outlined(_outline(axes, kinds[name].edges, values), i, message))
        words.append(message)
    sample = ((2.0, 12.0), (2.0, 3.0), (28.0, 3.0), (28.0, 12.0), (2.0, 12.0))
    legend = tuple(Entry(name, (_outlined(sample, i, ""),)) for i, name in enumerate(shares))
    return Chart(title, ". ".join(words), tuple(marks), note=note, legend=legend)


def _outline(axes: Axes, edges: Sequence[float], values: Sequence[float]) -> tuple[Place, ...]:
    places = [axes.at(edges[0], 0.0)]
    for left, right, value in zip(edges, edges[1:], values, strict=False):
        places += [axes.at(left, value), axes.at(right, value)]
    return (*places, axes.at(edges[-1], 0.0))


def _outlined(places: Sequence[Place], i: int, tip: str) -> Polyline:
    colour, dash = f"s{i % SERIES}", DASHES[i % len(DASHES)]
    fill = colour if i == 0 else "none"
    return Polyline(places, colour, 2.0, dash, fill=fill, fill_opacity=0.3, tip=tip)
