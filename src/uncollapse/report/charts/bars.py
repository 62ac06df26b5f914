"""Bars: a value each, such as the share of the variance on each axis."""

from __future__ import annotations

from collections.abc import Sequence

from uncollapse.report.charts.axes import Frame, Scale, figure
from uncollapse.report.markup import Html, esc, number

__all__ = ["bars"]


def bars(
    title: str,
    values: Sequence[float],
    *,
    x_label: str,
    small: str = "",
    split: tuple[int, str] | None = None,
    percent: bool = False,
) -> Html:
    """Values numbered from 1. `split=(n, text)` draws a line after the n-th with a text at it.

    >>> "1: 0.75" in bars("spectrum", [0.75, 0.25], x_label="axis")
    True
    """
    if not len(values):
        return Html("")
    across, up = Frame.area()
    count = len(values)
    x = Scale(0.5, count + 0.5, *across)
    frame = Frame(x, Scale(0.0, max(max(values), 1e-12) * 1.08, *up))
    parts: list[str] = [frame.axes(x_label, x_ticks=False, percent=percent)]
    step = max(1, round(count / 8))
    room = (across[1] - across[0]) / count
    for i, value in enumerate(values, 1):
        top = frame.y(value)
        parts.append(
            f'<rect x="{x(i) - 0.4 * room:.1f}" y="{top}" width="{0.8 * room:.1f}" '
            f'height="{frame.y.start - top:.1f}" fill="var(--s0)"/>'
        )
        if (i - 1) % step == 0:
            parts.append(
                f'<text x="{x(i)}" y="{frame.y.start + 17}" text-anchor="middle">{i}</text>'
            )
    if split is not None and split[0] < count:
        at, right = x(split[0] + 0.5), split[0] > count / 2
        parts.append(f'<path class="event" d="M{at} {frame.y.end}V{frame.y.start}"/>')
        side = f'x="{at - 6}" text-anchor="end"' if right else f'x="{at + 6}"'
        parts.append(f'<text {side} y="{frame.y.end + 10}">{esc(split[1])}</text>')
    first = ", ".join(f"{i}: {number(v)}" for i, v in enumerate(values[:10], 1))
    words = f"{count} values, first {first}" + (f"; {split[1]}" if split else "")
    return figure(title, words, Html("".join(parts)), small=small)
