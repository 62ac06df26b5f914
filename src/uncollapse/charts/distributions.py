"""How distances are distributed: one outline for each kind, on one axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from uncollapse.charts.axes import Axes, area
from uncollapse.charts.chart import Chart, Entry, empty
from uncollapse.charts.marks import DASHES, Mark, Place, Polyline
from uncollapse.charts.numbers import number, percent
from uncollapse.charts.scales import Scale
from uncollapse.charts.theme import SERIES

__all__ = ["Binned", "histogram"]


class Binned(Protocol):
    """Counts between edges, of which there is one more."""

    @property
    def edges(self) -> Sequence[float]:
        """Where the bins begin and end."""

    @property
    def counts(self) -> Sequence[int]:
        """How many are in each bin."""


def histogram(title: str, kinds: Mapping[str, Binned], *, x_label: str, note: str = "") -> Chart:
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
        said = f"{name}: most between {number(low)} and {number(high)} ({percent(values[best])})"
        marks.append(_outlined(_outline(axes, kinds[name].edges, values), i, said))
        words.append(said)
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
