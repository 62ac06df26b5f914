"""How distances are distributed: one outline for each kind, on one axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from uncollapse.health import Histogram
from uncollapse.report.charts.axes import DASHES, Frame, Scale, figure, legend
from uncollapse.report.markup import Html, number, percent

__all__ = ["histogram"]


def histogram(title: str, kinds: Mapping[str, Histogram], *, x_label: str, small: str = "") -> Html:
    """Shares of each kind between its edges: the first filled, the others outlined and dashed.

    >>> chart = histogram("d", {"all": Histogram((0.0, 1.0, 2.0), (1, 3))}, x_label="distance")
    >>> "all: most between 1 and 2" in chart
    True
    """
    kinds = {name: one for name, one in kinds.items() if sum(one.counts)}
    if not kinds:
        return Html("")
    across, up = Frame.area()
    shares = {name: [c / sum(one.counts) for c in one.counts] for name, one in kinds.items()}
    edges = [edge for one in kinds.values() for edge in one.edges]
    tallest = max(max(values) for values in shares.values())
    frame = Frame(Scale(min(edges), max(edges), *across), Scale(0.0, 1.08 * tallest, *up))
    parts: list[str] = [frame.axes(x_label, percent=True)]
    words = []
    for i, (name, values) in enumerate(shares.items()):
        outline = _outline(frame, kinds[name].edges, values)
        parts.append(f'<path d="{outline}" {_stroke(i)}/>')
        best = values.index(max(values))
        low, high = kinds[name].edges[best : best + 2]
        words.append(
            f"{name}: most between {number(low)} and {number(high)} ({percent(values[best])})"
        )
    entries = ((name, _sample(i)) for i, name in enumerate(shares))
    return figure(title, ". ".join(words), Html("".join(parts)), small=small, below=legend(entries))


def _outline(frame: Frame, edges: Sequence[float], values: Sequence[float]) -> str:
    base = frame.y(0.0)
    steps = "".join(
        f"V{frame.y(value)}H{frame.x(right)}"
        for value, right in zip(values, edges[1:], strict=True)
    )
    return f"M{frame.x(edges[0])} {base}{steps}V{base}"


def _stroke(i: int) -> str:
    fill = f'fill="var(--s{i})" fill-opacity=".3"' if i == 0 else 'fill="none"'
    dash = f' stroke-dasharray="{DASHES[i]}"' if DASHES[i] else ""
    return f'{fill} stroke="var(--s{i})" stroke-width="2"{dash}'


def _sample(i: int) -> Html:
    return Html(f'<path d="M2 12V3H28V12z" {_stroke(i)}/>')
