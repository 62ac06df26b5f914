"""Safe and unsafe regions of a forecast: a map over P x K, and curves over the dimension."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from uncollapse.health.drift_forecast import DANGEROUS, Cell
from uncollapse.health.trial_steps import NO_DRIFT
from uncollapse.report.charts.axes import DASHES, MARKS, Frame, Scale, figure, legend, mark
from uncollapse.report.charts.heatmap import Tile, tiles
from uncollapse.report.markup import Html, number, percent

__all__ = ["RISKS", "dimension_curves", "risk_key", "risk_map"]

# A sign, a tone of the page, and what it means.
RISKS = {
    "none": ("✓", "good", "does not shrink"),
    "some": ("~", "warn", "shrinks; may stop in time"),
    "high": ("✗", "bad", "shrinks towards a point"),
}
_LINES = 4  # shapes whose curves are drawn; more could not be told apart


def risk_map(title: str, cells: Sequence[Cell], *, small: str = "") -> Html:
    """Each batch shape coloured by its risk, with its drift (after a probe: the share foretold)."""
    rows = sorted({cell.p for cell in cells})
    columns = sorted({cell.k for cell in cells})
    marked, words = {}, []
    for cell in sorted(cells, key=lambda one: (one.p, one.k)):
        sign, tone, meaning = RISKS[cell.risk]
        place = rows.index(cell.p), columns.index(cell.k)
        marked[place] = Tile(f"{sign} {_value(cell)}", tone, 0.22)
        words.append(f"P {cell.p}, K {cell.k}: {_value(cell)}, {meaning}")
    return tiles(
        title,
        rows,
        columns,
        marked,
        row_label="P, classes",
        column_label="K, samples of each class",
        words=". ".join(words),
        small=small,
    )


def dimension_curves(title: str, cells: Sequence[Cell], *, small: str = "") -> Html:
    """Drift over the dimension for a few batch shapes, on the regions it falls into."""
    dims = sorted({cell.dim for cell in cells})
    shapes = _some(sorted({(cell.p, cell.k) for cell in cells}, key=lambda s: (s[0] * s[1], s)))
    at = {(cell.p, cell.k, cell.dim): cell.drift for cell in cells}
    values = [at[(*shape, dim)] for shape in shapes for dim in dims]
    across, up = Frame.area()
    low, high = min(*values, -0.05), max(*values, DANGEROUS * 1.3)
    x = Scale(-0.15, len(dims) - 0.85, *across)
    y = Scale(low - 0.05 * (high - low), high + 0.05 * (high - low), *up)
    parts = [_bands(x, y), Frame(x, y).axes("dimension", x_ticks=False)]
    for j, dim in enumerate(dims):
        parts.append(
            f'<text x="{x(j)}" y="{y.start + 17}" text-anchor="middle">{dim:,}</text>'
            f'<path class="axis" d="M{x(j)} {y.start}v4"/>'
        )
    kinds, words, entries = tuple(MARKS), [], []
    for i, shape in enumerate(shapes):
        places = [(x(j), y(at[(*shape, dim)])) for j, dim in enumerate(dims)]
        path = "L".join(f"{a:g} {b:g}" for a, b in places)
        dash = f' stroke-dasharray="{DASHES[i]}"' if DASHES[i] else ""
        line = f'<path class="line" stroke="var(--s{i})"{dash} d="'
        parts += [f'{line}M{path}"/>', *(mark(kinds[i], a, b, i) for a, b in places)]
        name = f"P {shape[0]}, K {shape[1]}"
        entries.append((name, Html(f'{line}M1 7H29"/>{mark(kinds[i], 15, 7, i)}')))
        each = ", ".join(f"{at[(*shape, dim)]:+.2f} at {dim}" for dim in dims)
        words.append(f"{name}: {each}")
    below = Html(legend(entries) + risk_key())
    return figure(title, ". ".join(words), Html("".join(parts)), small=small, below=below)


def _value(cell: Cell) -> str:
    return f"{cell.drift:+.2f}" if cell.probe is None else _share(cell.probe.predicted)


def _share(foretold: float) -> str:
    if foretold < 1e-4:
        return "→ 0"
    return percent(foretold) if foretold < 10 else f"x {number(foretold, 2)}"


def _some(shapes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The smallest, the largest and some between."""
    if len(shapes) <= _LINES:
        return shapes
    return [shapes[round(i * (len(shapes) - 1) / (_LINES - 1))] for i in range(_LINES)]


def _bands(x: Scale, y: Scale) -> str:
    edges = (y.low, NO_DRIFT, DANGEROUS, y.high)
    return "".join(
        f'<rect x="{x.start}" y="{y(top)}" width="{x.end - x.start}" '
        f'height="{max(0.0, y(bottom) - y(top)):.1f}" fill="var(--{tone})" fill-opacity=".13"/>'
        for (bottom, top), (_, tone, _) in zip(pairwise(edges), RISKS.values(), strict=True)
    )


def risk_key() -> Html:
    """What the colours mean."""
    return legend(
        (
            f"{sign} {meaning}",
            Html(f'<rect width="30" height="14" rx="3" fill="var(--{tone})" fill-opacity=".22"/>'),
        )
        for sign, tone, meaning in RISKS.values()
    )
