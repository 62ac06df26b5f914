"""Lines over steps, with the events that happened on the way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from uncollapse.report.charts.axes import DASHES, MARKS, Frame, Scale, figure, legend, mark
from uncollapse.report.markup import Html, esc, number
from uncollapse.report.style import SERIES

__all__ = ["Event", "Series", "curves"]

_KINDS = tuple(MARKS)
_MOST = 300  # points of a line; more would not be seen


@dataclass(frozen=True)
class Series:
    """A line: its name, and values over x. Values that are not finite are gaps."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


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
    small: str = "",
    log: bool | None = None,
    percent: bool = False,
) -> Html:
    """Lines told apart by colour, dash and mark. `log=None`: logarithmic if the range is wide.

    >>> chart = curves("loss", [Series("a", [0, 10, 20], [1.0, 0.5, 0.25])])
    >>> "a: from 1 to 0.25" in chart
    True
    """
    finite = [_finite(one) for one in series]
    values = [v for one in finite for v in one.y]
    steps = [v for one in finite for v in one.x] + [e.x for e in events]
    if not values:
        return Html("")
    across, up = Frame.area()
    x = Scale(min(steps), max(max(steps), min(steps) + 1e-9), *across)
    y = Scale.around(values, *up, log=False if percent else log, zero=percent or min(values) >= 0)
    if percent:
        y = Scale(0.0, max(1.0, max(values)), *up)
    frame = Frame(x, y)
    parts: list[str] = [frame.axes(x_label, percent=percent)]
    parts += _events(frame, events)
    for i, one in enumerate(finite):
        parts.append(_line(frame, one, i))
    words = [_words(one) for one in finite] + [
        f"{e.flag} at {number(e.x)}: {e.text}" for e in events
    ]
    names = legend(
        (one.name, _sample(i)) for i, one in enumerate(finite) if one.y and len(finite) > 1
    )
    scale = "logarithmic scale" if y.log else ""
    return figure(
        title,
        ". ".join(words),
        Html("".join(parts)),
        small=", ".join(part for part in (small, scale) if part),
        below=names,
    )


def _finite(one: Series) -> Series:
    pairs = [(float(a), float(b)) for a, b in zip(one.x, one.y, strict=True) if math.isfinite(b)]
    return Series(one.name, [a for a, _ in pairs], [b for _, b in pairs])


def _words(one: Series) -> str:
    if not one.y:
        return f"{one.name}: no values"
    lowest, highest = min(one.y), max(one.y)
    return (
        f"{one.name}: from {number(one.y[0])} to {number(one.y[-1])}, "
        f"lowest {number(lowest)}, highest {number(highest)}"
    )


def _line(frame: Frame, one: Series, i: int) -> str:
    if not one.x:
        return ""
    points = _thin([(frame.x(a), frame.y(b)) for a, b in zip(one.x, one.y, strict=True)])
    path = "L".join(f"{a:g} {b:g}" for a, b in points)
    drawn = f'<path class="line" stroke="var(--s{i % SERIES})"{_dash(i)} d="M{path}"/>'
    shown = {round(j * (len(points) - 1) / 7) for j in range(8)}
    marks = (mark(_KINDS[i % len(_KINDS)], *points[j], i % SERIES) for j in sorted(shown))
    return drawn + "".join(marks)


def _thin(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Fewer points, with the highest and lowest of each stretch kept: a spike stays visible."""
    if len(points) <= _MOST:
        return points
    size = math.ceil(len(points) / (_MOST // 2))
    kept: list[tuple[float, float]] = []
    for start in range(0, len(points), size):
        part = points[start : start + size]
        ends = {part.index(min(part, key=_height)), part.index(max(part, key=_height))}
        kept += [part[j] for j in sorted(ends)]
    return [points[0], *kept, points[-1]]


def _height(point: tuple[float, float]) -> float:
    return point[1]


def _events(frame: Frame, events: Sequence[Event]) -> list[str]:
    """A line at each event; those too near each other share a flag."""
    top = frame.y.end
    groups: list[list[Event]] = []
    for event in sorted(events, key=lambda e: e.x):
        if groups and frame.x(event.x) - frame.x(groups[-1][0].x) < 22:
            groups[-1].append(event)
        else:
            groups.append([event])
    drawn = [f'<path class="event" d="M{frame.x(e.x)} {top}V{frame.y.start}"/>' for e in events]
    for group in groups:
        flag = group[0].flag if len(group) == 1 else f"{group[0].flag}–{group[-1].flag}"
        at, wide = frame.x(group[0].x), 7 + 7 * len(flag)
        drawn.append(
            f'<rect class="flag" x="{at - wide / 2}" y="{top - 15}" width="{wide}" height="15" '
            f'rx="4"/><text class="flag-text" x="{at}" y="{top - 4}" '
            f'text-anchor="middle">{esc(flag)}</text>'
        )
    return drawn


def _sample(i: int) -> Html:
    line = f'<path class="line" stroke="var(--s{i % SERIES})"{_dash(i)} d="M1 7H29"/>'
    return Html(f"{line}{mark(_KINDS[i % len(_KINDS)], 15, 7, i % SERIES)}")


def _dash(i: int) -> str:
    dash = DASHES[i % len(DASHES)]
    return f' stroke-dasharray="{dash}"' if dash else ""
