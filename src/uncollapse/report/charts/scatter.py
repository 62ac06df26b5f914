"""A map of points in the plane, told by colour, mark and the class's name at its middle."""

from __future__ import annotations

from typing import Any

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse.report.charts.axes import MARKS, WIDTH, figure, legend, mark
from uncollapse.report.markup import Html, esc, number, short_id
from uncollapse.report.style import SERIES

__all__ = ["scatter"]


_KINDS = tuple(MARKS)
_NAMED = 12  # classes drawn in their own colour and mark; more cannot be told apart
_PAD = 18
_SIZE = WIDTH


def scatter(
    title: str,
    points: Array,
    labels: Array | None = None,
    *,
    small: str = "",
    rule: bool = True,
) -> Html:
    """Points `[N, 2]`, both axes alike. At most twelve classes get a colour; the rest is grey.

    `rule` draws a bar of a round length, for maps whose distances mean something.

    >>> chart = scatter("map", np.array([[0.0, 0.0], [1.0, 1.0]]), np.array(["a", "b"]))
    >>> chart.count("<marker "), "2 points" in chart
    (2, True)
    """
    xy = np.asarray(points, np.float64)
    placed, unit = _placed(xy)
    classes = [] if labels is None else _named(labels)
    groups = [(str(c), placed[labels == c]) for c in classes] if labels is not None else []
    rest = placed if labels is None else placed[~np.isin(labels, classes)]
    name = short_id(title, placed.tobytes(), *classes)
    parts = [_frame(), _rule(unit) if rule else ""]
    if len(rest):
        parts.append(_cloud(name, "rest", rest, "circle", 0 if labels is None else 7, 0.5))
    for i, (_, group) in enumerate(groups):
        parts.append(_cloud(name, str(i), group, _kind(i), i % SERIES, 0.8))
    signs = _signs([label for label, _ in groups])
    for sign, (_, group) in zip(signs, groups, strict=True):
        x, y = np.median(group, axis=0)
        parts.append(
            f'<text class="on" x="{x:.0f}" y="{y - 4:.0f}" text-anchor="middle">{esc(sign)}</text>'
        )
    total = 0 if labels is None else len(np.unique(labels))
    words = f"{len(xy):,} points" + f" of {total:,} class{'es' * (total > 1)}" * bool(total)
    if total > len(groups):
        words += f"; the {len(groups)} with most points are named, the others grey"
    entries = (
        (label if sign == label else f"{sign}: {label}", mark(_kind(i), 15, 7, i % SERIES, 1.3))
        for i, (sign, (label, _)) in enumerate(zip(signs, groups, strict=True))
    )
    text = ", ".join(part for part in (small, words) if part)
    return figure(
        title,
        f"A map of {words}",
        Html("".join(parts)),
        small=text,
        below=legend(entries),
        height=_SIZE,
        kind="map",
    )


def _placed(xy: Array) -> tuple[Array, float]:
    """Points inside the square, and how long one unit of theirs is there."""
    middle = (xy.max(axis=0) + xy.min(axis=0)) / 2
    reach = float(np.abs(xy - middle).max()) or 1.0
    unit = (_SIZE / 2 - _PAD) / reach
    place = (xy - middle) * unit * np.array([1.0, -1.0]) + _SIZE / 2
    return place.round(1), unit


def _named(labels: Array) -> list[Any]:
    classes, counts = np.unique(labels, return_counts=True)
    largest = np.argsort(-counts, kind="stable")[:_NAMED]
    return list(np.sort(classes[largest]).tolist())


def _signs(names: list[str]) -> list[str]:
    """What stands on the map: the names, or letters where those are too long for it."""
    if all(len(name) <= 6 for name in names):
        return names
    return [chr(ord("A") + i) for i in range(len(names))]


def _kind(i: int) -> str:
    """A mark; where colours begin again, another one than that colour had."""
    return _KINDS[(i + i // SERIES) % len(_KINDS)]


def _cloud(name: str, part: str, points: Array, kind: str, colour: int, opacity: float) -> str:
    """All points of a class as one path with a mark at each of its corners."""
    key = f"{name}-{part}"
    size = 0.9 if len(points) < 300 else 0.7
    path = "L".join(f"{x:g} {y:g}" for x, y in points)
    ends = "".join(f' marker-{at}="url(#{key})"' for at in ("start", "mid", "end"))
    if len(points) == 1:
        ends = f' marker-start="url(#{key})"'
    return (
        f'<defs><marker id="{key}" overflow="visible" markerUnits="userSpaceOnUse">'
        f'<path d="{MARKS[kind]}" transform="scale({size})" fill="var(--s{colour})"/></marker>'
        f'</defs><path d="M{path}" fill="none" stroke="none" opacity="{opacity}"{ends}/>'
    )


def _rule(unit: float) -> str:
    """A bar of a round length: the scale of the map."""
    wanted = _SIZE / 4 / unit
    size = 10.0 ** np.floor(np.log10(wanted))
    length = float(next(m * size for m in (5, 2, 1) if m * size <= wanted))
    end = _SIZE - 10 - length * unit
    return (
        f'<path class="axis" d="M{end:.1f} {_SIZE - 14}v4H{_SIZE - 10}v-4" fill="none"/>'
        f'<text x="{_SIZE - 10}" y="{_SIZE - 18}" text-anchor="end">{number(length)}</text>'
    )


def _frame() -> str:
    side = _SIZE - 1
    return (
        f'<rect x=".5" y=".5" width="{side}" height="{side}" rx="8" fill="none" class="grid-line"/>'
    )
