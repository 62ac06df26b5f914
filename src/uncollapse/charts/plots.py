"""Charts of values: lines with their events, bars, distributions, shaded tables, maps of points."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from uncollapse._base import table
from uncollapse._base.arrays import Array
from uncollapse._base.table import number
from uncollapse.charts.axes import Axes, Scale, area, finite
from uncollapse.charts.chart import Chart, Entry, empty
from uncollapse.charts.marks import (
    DASHES,
    HEIGHT,
    SERIES,
    WIDTH,
    Line,
    Mark,
    Place,
    Points,
    Polyline,
    Rect,
    Text,
    line_look,
    marker_kind,
)
from uncollapse.charts.text import fitting_size, text_width

_FEW = 3  # values that are worth a drawing; fewer are a sentence
_NOTHING = "There are no finite values to draw"


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
    """Something that happened at x; `flag` is a short mark that a list explains."""

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
    """Lines told apart by color, dash and marker. `log=None`: logarithmic if the range is wide.

    `x_ticks` are value and text; round values if none are given. With `percent` y is a share of
    one, written in per cent; with `zero` values that are none of them negative start at 0, and
    shares reach to 1.

    >>> chart = curves("loss", [Series("a", [0, 10, 20], [1.0, 0.5, 0.25])])
    >>> chart.description
    'a: from 1 to 0.25, lowest 0.25, highest 1'
    """
    kept = [_kept(curve) for curve in series]
    values = [v for curve in kept for v in (*curve.y, *finite(curve.low), *finite(curve.high))]
    steps = [v for curve in kept for v in curve.x] + [*(x_ticks or ())]
    steps += finite(event.x for event in events)
    words = [_words(curve, table.percent if percent else number) for curve in kept]
    if not values or (len(values) < _FEW and not events):
        return empty(title, f"{'. '.join(words) if values else _NOTHING}.", note=note)
    across, up = area(width, height, y_label=bool(y_label))
    x = Scale(min(steps), max(max(steps), min(steps) + 1e-9), *across)
    if percent and zero:
        y = Scale(0.0, max(1.0, max(values)), *up)
    else:
        y = Scale.around(values, *up, log=log, zero=zero and min(values) >= 0)
    axes = Axes(x, y)
    marks: list[Mark] = [*axes.frame(x_label, y_label, x_ticks=x_ticks, share=percent)]
    marks += _events(axes, events)
    for i, curve in enumerate(kept):
        if curve.low and curve.high:
            marks.append(axes.band(curve.x, curve.low, curve.high, f"s{i % SERIES}"))
    for i, (curve, tip) in enumerate(zip(kept, words, strict=True)):
        if curve.x:
            color, dash = f"s{i % SERIES}", DASHES[i % len(DASHES)]
            line = axes.line(curve.x, curve.y, color, dash, tip=tip)
            shown = sorted({round(j * (len(line.points) - 1) / 7) for j in range(8)})
            places = tuple(line.points[j] for j in shown)
            marks += [line, Points(places, marker_kind(i), color)]
    words += [f"{e.flag} at {number(e.x)}: {e.text}" for e in events]
    several = enumerate(kept) if len(kept) > 1 else ()
    names = [Entry(curve.name, line_look(i)) for i, curve in several if curve.y]
    notes = [part for part in (note, "logarithmic scale" * y.log) if part]
    return Chart(title, ". ".join(words), tuple(marks), width, height, ", ".join(notes), names)


def _kept(curve: Series) -> Series:
    rows = zip(curve.x, curve.y, curve.low or curve.y, curve.high or curve.y, strict=True)
    known = [row for row in rows if math.isfinite(row[0]) and math.isfinite(row[1])]
    x, y, low, high = ([float(row[k]) for row in known] for k in range(4))
    return Series(curve.name, x, y, low if curve.low else (), high if curve.high else ())


def _words(curve: Series, say: Callable[[float], str]) -> str:
    if len(curve.y) < _FEW:
        steps = zip(curve.x, curve.y, strict=True)
        sentence = " and ".join(f"{say(y)} at {number(x)}" for x, y in steps)
        return f"{curve.name}: {sentence or 'no values'}"
    first, last, low, high = map(say, (curve.y[0], curve.y[-1], min(curve.y), max(curve.y)))
    return f"{curve.name}: from {first} to {last}, lowest {low}, highest {high}"


def _events(axes: Axes, events: Sequence[Event]) -> list[Mark]:
    """A line at each event; those too near each other share a flag."""
    groups: list[list[Event]] = []
    for event in sorted(events, key=lambda e: e.x):
        if groups and axes.x(event.x) - axes.x(groups[-1][0].x) < 22:
            groups[-1].append(event)
        else:
            groups.append([event])
    marks: list[Mark] = [axes.upright(e.x) for e in events]
    for group in groups:
        flag = ",".join([event.flag for event in group[:2]] + ["…"] * (len(group) > 2))
        at, wide = axes.x(group[0].x), 7.0 + 7.0 * len(flag)
        tip = "; ".join(f"{e.flag} at {number(e.x)}: {e.text}" for e in group)
        marks.append(Rect(at - wide / 2, axes.y.end - 15, wide, 15, "ink", round=4, tip=tip))
        marks.append(Text(at, axes.y.end - 4, flag, 11, "card", "middle", bold=True, tip=tip))
    return marks


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

    >>> bars("spectrum", [0.75, 0.2, 0.05], x_label="axis").description
    '3 values, first 1: 0.75, 2: 0.2, 3: 0.05'
    """
    known, say = finite(values), table.percent if percent else number
    words = ", ".join(f"{i}: {say(value)}" for i, value in enumerate(values[:10], 1))
    if len(known) < _FEW:
        return empty(title, f"{x_label} {words}." if known else f"{_NOTHING}.", note=note)
    across, up = area()
    count = len(values)
    # Zeros alone have an ordinary axis.
    low, high = 1.08 * min(0.0, *known), 1.08 * (max(0.0, *known) or 1.0)
    axes = Axes(Scale(0.5, count + 0.5, *across), Scale(low, high, *up))
    numbered = {float(i): str(i) for i in range(1, count + 1, max(1, round(count / 8)))}
    marks: list[Mark] = list(axes.frame(x_label, x_ticks=numbered, share=percent))
    wide = 0.8 * (across[1] - across[0]) / count
    for i, value in enumerate(values, 1):
        if math.isfinite(value):
            top, bottom = sorted((axes.y(value), axes.y(0.0)))
            box = axes.x(i) - wide / 2, top, wide, bottom - top
            marks.append(Rect(*box, "s0", tip=f"{i}: {say(value)}"))
    if split is not None and split[0] < count:
        marks.append(axes.upright(split[0] + 0.5))
        at, right = axes.x(split[0] + 0.5), split[0] > count / 2
        side, anchor = (at - 6, "end") if right else (at + 6, "start")
        marks.append(Text(side, axes.y.end + 10, split[1], anchor=anchor, halo=True))
    words = f"{count} values, first {words}" + (f"; {split[1]}" if split else "")
    return Chart(title, words, tuple(marks), note=note)


def histogram(title: str, kinds: Mapping[str, Any], *, x_label: str, note: str = "") -> Chart:
    """Shares of each kind between its edges: the first filled, the others outlined and dashed.

    A kind has `counts`, and `edges`, of which there is one more.
    """
    kinds = {name: kind for name, kind in kinds.items() if sum(kind.counts)}
    if not kinds:
        return empty(title, "There is nothing to count.", note=note)
    across, up = area()
    shares = {name: [c / sum(kind.counts) for c in kind.counts] for name, kind in kinds.items()}
    edges = [edge for kind in kinds.values() for edge in kind.edges]
    tallest = max(max(values) for values in shares.values())
    axes = Axes(Scale(min(edges), max(edges), *across), Scale(0.0, 1.08 * tallest, *up))
    marks: list[Mark] = list(axes.frame(x_label, share=True))
    words = []
    for i, (name, values) in enumerate(shares.items()):
        best = values.index(max(values))
        low, high = kinds[name].edges[best : best + 2]
        share = table.percent(values[best])
        words.append(f"{name}: most between {number(low)} and {number(high)} ({share})")
        heights = (0.0, *np.repeat(values, 2), 0.0)
        corners = zip(np.repeat(kinds[name].edges, 2), heights, strict=True)
        marks.append(_outlined([axes.at(*corner) for corner in corners], i, words[-1]))
    sample = ((2.0, 12.0), (2.0, 3.0), (28.0, 3.0), (28.0, 12.0), (2.0, 12.0))
    legend = tuple(Entry(name, (_outlined(sample, i, ""),)) for i, name in enumerate(shares))
    return Chart(title, ". ".join(words), tuple(marks), note=note, legend=legend)


def _outlined(places: Sequence[Place], i: int, tip: str) -> Polyline:
    color, dash = f"s{i % SERIES}", DASHES[i % len(DASHES)]
    fill = color if i == 0 else "none"
    return Polyline(places, color, 2.0, dash, fill=fill, fill_opacity=0.3, tip=tip)


_TOP, _TALL = 8.0, 30.0
_LEAST = 9.0  # the smallest text; where it does not fit, cells are made wider


@dataclass(frozen=True)
class Tile:
    """A cell: what is written in it, and a color at some strength behind it.

    `sign` stands before the text, or above it where there is no room.
    """

    text: str
    tone: str
    strength: float
    sign: str = ""


def tiles(
    title: str,
    rows: Sequence[object],
    columns: Sequence[object],
    cells: Mapping[tuple[int, int], Tile],
    *,
    row_label: str,
    column_label: str,
    words: str,
    note: str = "",
) -> Chart:
    """Cells by row and column number, some of which may be missing; `words` describe them."""
    if not rows or not columns:
        return empty(title, "There are no cells to draw.", note=note)
    left = 32.0 + max(text_width(str(name)) for name in rows)
    texts = [tile.text for tile in cells.values()] + [str(name) for name in columns]
    need = max(text_width(text, _LEAST) for text in texts) + 6
    wide = max((WIDTH - left - 4) / len(columns), need)
    full = [f"{tile.sign} {tile.text}".strip() for tile in cells.values()]
    size = min((fitting_size(text, wide - 6, least=_LEAST) for text in texts), default=12.0)
    one_line = all(text_width(text, size) <= wide - 6 for text in full)
    tall = _TALL if one_line else _TALL + 14
    bottom = _TOP + len(rows) * tall
    marks: list[Mark] = []
    for i, name in enumerate(rows):
        marks.append(Text(left - 8, _TOP + (i + 0.5) * tall + 3, str(name), anchor="end"))
    for (i, j), tile in cells.items():
        x, y = left + j * wide, _TOP + i * tall
        middle, tip = x + wide / 2 - 1, f"{row_label} {rows[i]}, {column_label} {columns[j]}"
        text = f"{tile.sign} {tile.text}".strip()
        box = x, y, wide - 2, tall - 2
        marks.append(Rect(*box, tile.tone, tile.strength, round=3, tip=f"{tip}: {text}"))
        lines = [text] if one_line else [line for line in (tile.sign, tile.text) if line]
        for k, line in enumerate(lines):
            at = y + tall / 2 + 3 + 14 * (k - (len(lines) - 1) / 2)
            marks.append(Text(middle, at, line, size, "ink", "middle"))
    for j, name in enumerate(columns):
        middle = left + (j + 0.5) * wide - 1
        marks.append(Text(middle, bottom + 14, str(name), size, anchor="middle"))
    width = left + len(columns) * wide + 4
    marks.append(Text((left + width) / 2, bottom + 32, column_label, anchor="middle"))
    marks.append(Text(12, (_TOP + bottom) / 2, row_label, anchor="middle", turn=-90))
    return Chart(title, words, tuple(marks), width, bottom + 40, note)


def heatmap(
    title: str,
    rows: Sequence[object],
    columns: Sequence[object],
    values: Sequence[Sequence[float]],
    *,
    row_label: str,
    column_label: str,
    note: str = "",
    crossed: Sequence[Sequence[bool]] | None = None,
) -> Chart:
    """Numbers shaded by size, each written in its cell; `crossed` marks cells with ✗ as well.

    >>> chart = heatmap("risk", [2, 4], [8], [[0.1], [0.9]], row_label="P", column_label="K",
    ...                  crossed=[[False], [True]])
    >>> chart.description
    'K: 8. P 2: 0.1. P 4: 0.9'
    """
    finite = [v for row in values for v in row if math.isfinite(v)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    cells, words = {}, [f"{column_label}: {', '.join(map(str, columns))}"]
    for i, (name, row) in enumerate(zip(rows, values, strict=True)):
        words.append(f"{row_label} {name}: " + ", ".join(number(v) for v in row))
        for j, value in enumerate(row):
            shade = (value - low) / ((high - low) or 1.0) if math.isfinite(value) else 0.0
            sign = "✗" if crossed is not None and crossed[i][j] else ""
            cells[i, j] = Tile(number(value, 2), "s1", round(0.06 + 0.49 * shade, 2), sign)
    labels = {"row_label": row_label, "column_label": column_label}
    return tiles(title, rows, columns, cells, words=". ".join(words), note=note, **labels)


def _labels_apart(
    places: Sequence[Place], sizes: Sequence[Place], box: tuple[float, float, float, float]
) -> list[Place]:
    """Centres of boxes of these sizes near the places, inside `box`, no two of them overlapping.

    `box` is (left, top, right, bottom). Where they cannot all fit, they overlap as little as the
    steps allow.

    >>> _labels_apart([(50, 50), (50, 50)], [(20, 10), (20, 10)], (0, 0, 100, 100))
    [(50.0, 45.0), (50.0, 55.0)]
    """
    at = np.asarray(places, np.float64).reshape(-1, 2).copy()
    half = np.asarray(sizes, np.float64).reshape(-1, 2) / 2
    least, most = np.asarray(box[:2]) + half, np.asarray(box[2:]) - half
    at = np.clip(at, least, np.maximum(least, most))
    for _ in range(400):
        gap = at[None] - at[:, None]  # from i to j
        lap = half[:, None] + half[None] - np.abs(gap)
        both = np.asarray((lap > 1e-6).all(axis=2))
        np.fill_diagonal(both, False)
        if not both.any():
            break
        # Each pair parts along the axis where it takes less; those at one place by their order.
        order = np.sign(np.subtract.outer(np.arange(len(at)), np.arange(len(at)))).T
        direction = np.where(gap == 0, order[..., None], np.sign(gap))
        along = lap.argmin(axis=2)
        push = np.zeros_like(gap)
        i, j = np.nonzero(both)
        k = along[i, j]
        push[i, j, k] = -0.5 * lap[i, j, k] * direction[i, j, k]
        at = np.clip(at + push.sum(axis=1), least, np.maximum(least, most))
    return [(round(float(x), 1), round(float(y), 1)) for x, y in at]


def _names_on_map(names: Sequence[str], places: Sequence[Place]) -> list[Mark]:
    """A name at each place of a map; a line leads from names moved far away."""
    sizes = [(text_width(name, bold=True) + 4, 15.0) for name in names]
    centres = _labels_apart(places, sizes, (2.0, 2.0, _SIZE - 2.0, _SIZE - 2.0))
    marks: list[Mark] = [
        Line((x, y), (to_x, to_y), "soft", 0.8)
        for (x, y), (to_x, to_y) in zip(places, centres, strict=True)
        if abs(x - to_x) + abs(y - to_y) > 18
    ]
    for name, (x, y) in zip(names, centres, strict=True):
        marks.append(Text(x, y + 4.3, name, 12.0, "ink", "middle", bold=True, halo=True))
    return marks


NAMED = 12  # classes drawn in their own color and marker; more cannot be told apart
_PAD, _SIZE = 18, WIDTH  # of a map


def by_size(labels: Array) -> list[Any]:
    """The classes, largest first; those of one size by name, in which 2 comes before 10.

    >>> by_size(np.array(["K10", "K2", "K1", "K1", "K10", "K2", "K3"]))
    ['K1', 'K2', 'K10', 'K3']
    """
    names, counts = np.unique(labels, return_counts=True)
    sizes = dict(zip(names.tolist(), counts.tolist(), strict=True))
    natural = {name: re.sub("[0-9]+", lambda m: m[0].zfill(20), str(name)) for name in sizes}
    return sorted(sizes, key=lambda name: (-sizes[name], natural[name]))


def map_places(points: Array) -> tuple[Array, float]:
    """Where finite points `[N, 2]` lie on a map, and how long one unit of theirs is there."""
    middle = (points.max(axis=0) + points.min(axis=0)) / 2
    unit = (_SIZE / 2 - _PAD) / (float(np.abs(points - middle).max()) or 1.0)
    return ((points - middle) * unit * np.array([1.0, -1.0]) + _SIZE / 2).round(1), unit


def scatter(
    title: str,
    points: Array,
    labels: Array | None = None,
    *,
    note: str = "",
    rule: bool = True,
    first: int = 0,
    classes: Sequence[Any] = (),
) -> Chart:
    """Points `[N, 2]`, both axes alike. At most twelve classes get a color; the rest is grey.

    `rule` draws a bar of a round length, for maps whose distances mean something. Colours and
    markers begin with number `first`. `classes` are those to name, in this order, instead of the
    ones with most points. Points that are not finite are left out.

    >>> chart = scatter("map", np.array([[0.0, 0.0], [1.0, 1.0]]), np.array(["a", "b"]))
    >>> chart.description
    'A map of 2 points of 2 classes'
    """
    xy = np.asarray(points, np.float64).reshape(-1, 2)
    known = np.isfinite(xy).all(axis=1)
    xy, labels = xy[known], None if labels is None else np.asarray(labels)[known]
    if not len(xy):
        return empty(title, "There are no points to draw.", note=note)
    placed, unit = map_places(xy)
    groups, unnamed, total = [], placed, 0
    if labels is not None:
        every = by_size(labels)
        total, named = len(every), (classes or every)[:NAMED]
        groups = [(str(name), placed[labels == name]) for name in named]
        unnamed = placed[~np.isin(labels, named)]
    marks: list[Mark] = [Rect(0.5, 0.5, _SIZE - 1, _SIZE - 1, color="grid", round=8)]
    marks += _rule(unit) if rule else []
    if len(unnamed):
        marks.append(_cloud(unnamed, "circle", "s0" if labels is None else "s7", 0.5))
    for i, (_, group) in enumerate(groups, first):
        marks.append(_cloud(group, marker_kind(i), f"s{i % SERIES}", 0.8))
    # What stands on the map: the names, or letters where those are too long for it.
    short = all(len(label) <= 6 for label, _ in groups)
    signs = [label if short else chr(ord("A") + k) for k, (label, _) in enumerate(groups)]
    marks += _names_on_map(signs, [np.median(places, axis=0).tolist() for _, places in groups])
    words = f"{len(xy):,} points" + f" of {total:,} class{'es' * (total > 1)}" * bool(total)
    if total > len(groups):
        words += f"; the {len(groups)} largest are named, the others grey"
    legend = []
    for i, (sign, (label, _)) in enumerate(zip(signs, groups, strict=True), first):
        sample = Points(((15, 7),), marker_kind(i), f"s{i % SERIES}", 1.3)
        legend.append(Entry(label if short else f"{sign}: {label}", (sample,)))
    notes = ", ".join(part for part in (note, words) if part)
    return Chart(title, f"A map of {words}", marks, _SIZE, _SIZE, notes, legend, "map")


def _cloud(places: Array, kind: str, color: str, opacity: float) -> Points:
    size = 0.9 if len(places) < 300 else 0.7
    return Points(tuple(map(tuple, places.tolist())), kind, color, size, opacity)


def _rule(unit: float) -> list[Mark]:
    """A bar of a round length: the scale of the map."""
    wanted = _SIZE / 4 / unit
    size = 10.0 ** math.floor(math.log10(wanted))
    length = next(m * size for m in (5, 2, 1) if m * size <= wanted)
    right, base = _SIZE - 10.0, _SIZE - 14.0
    left = right - length * unit
    bar = ((left, base), (left, base + 4), (right, base + 4), (right, base))
    return [Polyline(bar, "soft", 1.0), Text(right, base - 4, number(length), anchor="end")]
