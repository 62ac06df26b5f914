"""Safe and unsafe regions of a forecast: a map over P x K, and curves over the dimension."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from uncollapse.charts import Axes, Chart, Entry, Legend, Scale, Tile, area, tiles
from uncollapse.charts.line_charts import line_look, marker_kind
from uncollapse.charts.marks import DASHES, Mark, Points, Rect
from uncollapse.charts.numbers import number, percent
from uncollapse.health.forecast_result import DANGEROUS, Cell
from uncollapse.health.trial_steps import NO_DRIFT

__all__ = ["RISKS", "dimension_curves", "risk_key", "risk_map"]

# A sign, a tone of the page, and what it means.
RISKS = {
    "none": ("✓", "good", "does not shrink"),
    "some": ("~", "warn", "shrinks; may stop in time"),
    "high": ("✗", "bad", "shrinks towards a point"),
}
_LINES = 4  # shapes whose curves are drawn; more could not be told apart


def risk_map(title: str, cells: Sequence[Cell], *, note: str = "") -> Chart:
    """Each batch shape coloured by its risk, with its drift (after a probe: the share kept)."""
    rows = sorted({cell.p for cell in cells})
    columns = sorted({cell.k for cell in cells})
    marked, words = {}, []
    for cell in sorted(cells, key=lambda one: (one.p, one.k)):
        sign, tone, meaning = RISKS[cell.risk]
        place = rows.index(cell.p), columns.index(cell.k)
        marked[place] = Tile(_value(cell), tone, 0.22, sign)
        words.append(f"P {cell.p}, K {cell.k}: {_value(cell)}, {meaning}")
    return tiles(
        title,
        rows,
        columns,
        marked,
        row_label="P, classes",
        column_label="K, samples of each class",
        words=". ".join(words),
        note=note,
    )


def dimension_curves(title: str, cells: Sequence[Cell], *, note: str = "") -> Chart:
    """Drift over the dimension for a few batch shapes, on the regions it falls into."""
    dims = sorted({cell.dim for cell in cells})
    shapes = _some(sorted({(cell.p, cell.k) for cell in cells}, key=lambda s: (s[0] * s[1], s)))
    at = {(cell.p, cell.k, cell.dim): cell.drift for cell in cells}
    values = [at[(*shape, dim)] for shape in shapes for dim in dims]
    across, up = area()
    low, high = min(*values, -0.05), max(*values, DANGEROUS * 1.3)
    room = 0.05 * (high - low)
    axes = Axes(Scale(-0.15, len(dims) - 0.85, *across), Scale(low - room, high + room, *up))
    named = {float(j): f"{dim:,}" for j, dim in enumerate(dims)}
    marks: list[Mark] = [*_bands(axes), *axes.frame("dimension", x_ticks=named)]
    words, entries = [], []
    for i, shape in enumerate(shapes):
        line = axes.line(
            range(len(dims)), [at[(*shape, dim)] for dim in dims], f"s{i}", dash=DASHES[i]
        )
        marks += [line, Points(line.points, marker_kind(i), f"s{i}")]
        name = f"P {shape[0]}, K {shape[1]}"
        entries.append(Entry(name, line_look(i)))
        each = ", ".join(f"{at[(*shape, dim)]:+.2f} at {dim}" for dim in dims)
        words.append(f"{name}: {each}")
    legend = (*entries, *risk_key().entries)
    return Chart(title, ". ".join(words), marks, note=note, legend=legend)


def risk_key() -> Legend:
    """What the colours mean."""
    return Legend(
        tuple(
            Entry(f"{sign} {meaning}", (Rect(0, 0, 30, 14, tone, 0.22, round=3),))
            for sign, tone, meaning in RISKS.values()
        )
    )


def _value(cell: Cell) -> str:
    return f"{cell.drift:+.2f}" if cell.probe is None else _share(cell.probe.predicted)


def _share(kept: float) -> str:
    if kept < 1e-4:
        return "→ 0"
    return percent(kept) if kept < 10 else f"x {number(kept, 2)}"


def _some(shapes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The smallest, the largest and some between."""
    if len(shapes) <= _LINES:
        return shapes
    return [shapes[round(i * (len(shapes) - 1) / (_LINES - 1))] for i in range(_LINES)]


def _bands(axes: Axes) -> list[Mark]:
    edges = (axes.y.low, NO_DRIFT, DANGEROUS, axes.y.high)
    tones = [tone for _, tone, _ in RISKS.values()]
    return [
        axes.rows(low, high, tone) for (low, high), tone in zip(pairwise(edges), tones, strict=True)
    ]
