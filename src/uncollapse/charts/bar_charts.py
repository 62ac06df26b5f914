"""Bars: a value each, such as the share of the variance on each axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

from uncollapse.charts.axes import Axes, area
from uncollapse.charts.chart import Chart, empty
from uncollapse.charts.marks import Mark, Rect, Text
from uncollapse.charts.numbers import number
from uncollapse.charts.numbers import percent as say_percent
from uncollapse.charts.scales import Scale, finite

__all__ = ["bars"]


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
    found = finite(values)
    if not found:
        return empty(title, "There are no finite values to draw.", note=note)
    across, up = area()
    count = len(values)
    largest = max(found) if max(found) > 0 else 1.0  # zeros alone: an ordinary axis
    low, high = min(0.0, 1.08 * min(found)), largest * 1.08
    axes = Axes(Scale(0.5, count + 0.5, *across), Scale(low, high, *up))
    step = max(1, round(count / 8))
    numbered = {float(i): str(i) for i in range(1, count + 1, step)}
    marks: list[Mark] = list(axes.frame(x_label, x_ticks=numbered, share=percent))
    room, say = (across[1] - across[0]) / count, say_percent if percent else number
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
