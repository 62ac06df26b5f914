"""The page of a forecast: what to choose, maps over batch shapes and dimensions, alternatives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from uncollapse._base.table import number, percent
from uncollapse.charts import Axes, Chart, Entry, Legend, Scale, Series, area, curves
from uncollapse.charts.marks import DASHES, Mark, Points, Rect, line_look, marker_kind
from uncollapse.charts.plots import Tile, tiles
from uncollapse.health.drifts import NO_DRIFT
from uncollapse.health.forecasts import DANGEROUS, Forecast
from uncollapse.health.forecasts import ForecastCell as Shape
from uncollapse.report.page import Cell, Page, Table
from uncollapse.report.race_charts import RECALL, RESULTS, race_chart
from uncollapse.training.predictions import RaceResult

__all__ = [
    "RISKS",
    "dimension_curves",
    "forecast_content",
    "make_forecast_page",
    "risk_key",
    "risk_map",
    "save_forecast_page",
]


# Safe and unsafe regions of a forecast: a map over P x K, and curves over the dimension.

# A sign, a tone of the page, and what it means.
RISKS = {
    "none": ("✓", "good", "does not shrink"),
    "some": ("~", "warn", "shrinks; may stop in time"),
    "high": ("✗", "bad", "shrinks towards a point"),
}
_LINES = 4  # shapes whose curves are drawn; more could not be told apart


def risk_map(title: str, cells: Sequence[Shape], *, note: str = "") -> Chart:
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


def dimension_curves(title: str, cells: Sequence[Shape], *, note: str = "") -> Chart:
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


def _value(cell: Shape) -> str:
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


_PROBES = 4  # whose curves are drawn


def make_forecast_page(
    found: Forecast, title: str = "Forecast", about: str = "", race: RaceResult | None = None
) -> Page:
    """The page; `about` says in a sentence what was asked about. A race's winner is recommended."""
    return Page("forecast.html.j2", {"title": title} | forecast_content(found, about, race))


def save_forecast_page(
    found: Forecast,
    path: str | Path,
    title: str = "Forecast",
    about: str = "",
    race: RaceResult | None = None,
) -> Path:
    """Write the page as one self-contained HTML file."""
    return make_forecast_page(found, title, about, race).save(path)


def forecast_content(
    found: Forecast, about: str = "", race: RaceResult | None = None
) -> dict[str, Any]:
    """What the template shows below the title."""
    strategy = found.cells[0].strategy
    risky = sum(one.risk == "high" for one in found.cells)
    glyph, tone, meaning = RISKS[max((one.risk for one in found.cells), key=list(RISKS).index)]
    best = found.recommended
    dims = sorted({one.dim for one in found.cells})
    several, probed = len(found.cells) > 1, found.cells[0].probe is not None
    shows = "predicted share of the scale kept" if probed else "drift at initialisation"
    return {
        "lead": about or f"{strategy}, before any training",
        "headline": f"{risky} of {len(found.cells)} shapes of {strategy} are at high risk"
        if several
        else f"{strategy} {meaning}",
        "tone": tone,
        "glyph": glyph,
        "reason": found.reason if race is None else str(race.winner),
        "figures": _race_figures(race)
        if race is not None
        else {
            "P": best.p,
            "K": best.k,
            "dimension": best.dim,
            "drift": _signed(best.drift),
            "mode drift": _modes(best.mode_drift),
        },
        "races": [] if race is None else [_race(race)],
        "maps": [
            risk_map(f"Dimension {dim}", [c for c in found.cells if c.dim == dim], note=shows)
            for dim in dims
            if several
        ],
        "risk_key": risk_key(),
        "dimensions": [dimension_curves(f"Drift of {strategy}", found.cells)] * (len(dims) > 1),
        "probes": _probe_charts(found.cells),
        "alternatives": _alternatives(found) if found.alternatives else None,
        "all_figures": _all_figures(found, probed),
        "c": found.c,
    }


def _race_figures(found: RaceResult) -> dict[str, object]:
    first = found.entrants[0]
    own = next(one for one in found.entrants if one.strategy == found.own)
    return {
        "R@1 on train, in the race": percent(first.recall),
        **({"R@1 on train, own strategy": percent(own.recall)} if first != own else {}),
        "R@1 on train, untrained": percent(found.start),
        "drift": _signed(first.drift),
    }


def _race(found: RaceResult) -> dict[str, Any]:
    rows = [
        [
            Cell(str(one.strategy), note="the run's own" * (one.strategy == found.own)),
            Cell(_signed(one.drift), one.drift),
            one.steps,
            Cell(percent(one.recall), one.recall),
            Cell(percent(one.scale), one.scale),
            Cell(RESULTS[one.result], style="whole"),
        ]
        for one in found.entrants
    ]
    head = ["strategy", "drift", "steps", RECALL, "scale left", "result"]
    chart = race_chart(found.race, "Race from the untrained network", start=found.start)
    return {"chart": chart, "table": Table(head, rows)}


def _probe_charts(cells: Sequence[Shape]) -> list[Chart]:
    probed = [cell for cell in cells if cell.probe is not None]
    if not probed:
        return []
    few = sorted(probed, key=lambda cell: cell.p * cell.k * cell.dim)
    if len(few) > _PROBES:
        few = [few[round(i * (len(few) - 1) / (_PROBES - 1))] for i in range(_PROBES)]
    scales, drifts, modes = [], [], []
    for cell in few:
        if cell.probe is not None:
            name = f"P {cell.p}, K {cell.k}, dim {cell.dim}"
            steps = list(range(len(cell.probe.scales)))
            first = cell.probe.scales[0] or 1.0
            scales.append(Series(name, steps, [s / first for s in cell.probe.scales]))
            drifts.append(Series(name, steps, cell.probe.drifts))
            seen = [(s, rate) for s, rate in enumerate(cell.probe.modes) if not math.isnan(rate)]
            modes += [Series(name, *map(list, zip(*seen, strict=True)))] if seen else []
    charts = [curves("Mean distance over its start", scales), curves("Drift", drifts)]
    return [*charts, curves("Mode drift", modes)] if modes else charts


def _alternatives(found: Forecast) -> Table:
    rows = []
    for strategy in dict.fromkeys(cell.strategy for cell in found.alternatives):
        cells = [cell for cell in found.alternatives if cell.strategy == strategy]
        worst = max(cells, key=lambda cell: cell.drift)
        shrinking = sum(cell.risk != "none" for cell in cells)
        glyph, _, meaning = RISKS[worst.risk]
        drift = Cell(_signed(worst.drift), worst.drift)
        modes = max((c.mode_drift for c in cells), key=lambda v: -math.inf if math.isnan(v) else v)
        merging = Cell(_modes(modes), modes)
        share = f"{shrinking} of {len(cells)}"
        rows.append(
            [str(strategy), drift, share, Cell(f"{glyph} {meaning}", style="whole"), merging]
        )
    head = ["strategy", "largest drift", "shapes that shrink", "at worst", "largest mode drift"]
    return Table(head, rows)


def _all_figures(found: Forecast, probed: bool) -> Table:
    head = ["strategy", "P", "K", "dim", "drift", "spread", "diameter", "loss", "bound (17)"]
    head += ["mode drift", *["scale kept", "mode drift, probed"] * probed, "risk"]
    rows = [_row(cell, probed) for cell in (*found.cells, *found.alternatives)]
    return Table(head, rows, first=24, sortable=True)


def _row(cell: Shape, probed: bool) -> list[object]:
    bound = number(cell.bound) if cell.bound > 0 else "vacuous"
    row: list[object] = [str(cell.strategy), cell.p, cell.k, cell.dim]
    row += [Cell(_signed(cell.drift), cell.drift), cell.spread, cell.diameter, cell.loss]
    row.append(Cell(bound, cell.bound))
    row.append(_mode_cell(None if cell.modes is None else cell.modes.value))
    if probed:
        kept = None if cell.probe is None else cell.probe.predicted
        row.append(Cell(percent(kept), kept))
        row.append(_mode_cell(None if cell.probe is None else cell.probe.mode_drift))
    return [*row, f"{RISKS[cell.risk][0]} {cell.risk}"]


def _signed(drift: float) -> str:
    return f"{round(drift, 3) + 0.0:+.3f}"  # no -0.000


def _modes(drift: float) -> str:
    return "–" if math.isnan(drift) else f"{drift:+.2f}"


def _mode_cell(drift: float | None) -> Cell:
    known = None if drift is None or math.isnan(drift) else drift
    return Cell("–" if known is None else _modes(known), known)
