"""The page of a forecast: what to choose, maps over batch shapes and dimensions, alternatives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from uncollapse._base.table import Cell, Table, number, percent
from uncollapse.charts import Chart, Entry, Legend, Series, curves
from uncollapse.charts.marks import Rect
from uncollapse.charts.plots import Tile, tiles
from uncollapse.health.verdict import DANGEROUS, NO_DRIFT
from uncollapse.report.page import Page
from uncollapse.report.parts import RECALL, race_chart, result_cell, share_cell

if TYPE_CHECKING:
    from uncollapse.health.forecasts import Forecast, ForecastCell
    from uncollapse.training.predictions import RaceResult

# A sign, a tone of the page, and what it means.
_RISKS = {
    "none": ("✓", "good", "does not shrink"),
    "some": ("~", "warn", "shrinks; may stop in time"),
    "high": ("✗", "bad", "shrinks towards a point"),
}
_RISK_KEY = Legend(
    [
        Entry(f"{sign} {meaning}", (Rect(0, 0, 30, 14, tone, 0.22, round=3),))
        for sign, tone, meaning in _RISKS.values()
    ]
)
_RACE = "Race from the untrained network"
_LINES = 4  # of a chart; more could not be told apart


def make_forecast_page(
    forecast: Forecast, title: str = "Forecast", about: str = "", race: RaceResult | None = None
) -> Page:
    """The page; `about` says in a sentence what was asked about. A race's winner is recommended."""
    cells, best = forecast.cells, forecast.recommended
    strategy, several, probed = cells[0].strategy, len(cells) > 1, cells[0].probe is not None
    risky = sum(cell.risk == "high" for cell in cells)
    glyph, tone, meaning = _RISKS[max((cell.risk for cell in cells), key=list(_RISKS).index)]
    note = "predicted share of the scale kept" if probed else "drift at initialisation"
    headline = f"{strategy} {meaning}"
    if several:
        headline = f"{risky} of {len(cells)} shapes of {strategy} are at high risk"
    figures: dict[str, object] = {
        "P": best.p,
        "K": best.k,
        "dimension": best.dim,
        "drift": _signed(best.drift),
        "mode drift": _mode_cell(best.mode_drift).text,
    }
    dims = sorted({cell.dim for cell in cells})
    content = {
        "title": title,
        "lead": about or f"{strategy}, before any training",
        "headline": headline,
        "tone": tone,
        "glyph": glyph,
        "reason": forecast.reason if race is None else str(race.winner),
        "figures": figures if race is None else _race_figures(race),
        "races": []
        if race is None
        else [{"chart": race_chart(race.race, _RACE), "table": race_table(race)}],
        "maps": [
            _risk_map(f"Dimension {dim}", [cell for cell in cells if cell.dim == dim], note)
            for dim in dims
            if several
        ],
        "risk_key": _RISK_KEY,
        "dimensions": [_dimension_curves(f"Drift of {strategy}", cells)] * (len(dims) > 1),
        "probes": _probe_charts(cells),
        "alternatives": alternatives_table(forecast) if forecast.alternatives else None,
        "all_figures": figures_table((*cells, *forecast.alternatives), strategies=True),
        "c": forecast.c,
    }
    return Page("forecast.html.j2", content)


# Safe and unsafe regions: a map over P x K, and curves over the dimension.


def _risk_map(title: str, cells: Sequence[ForecastCell], note: str) -> Chart:
    """Each batch shape coloured by its risk, with its drift (after a probe: the share kept)."""
    rows = sorted({cell.p for cell in cells})
    columns = sorted({cell.k for cell in cells})
    marked, words = {}, []
    for cell in sorted(cells, key=lambda cell: (cell.p, cell.k)):
        sign, tone, meaning = _RISKS[cell.risk]
        value = f"{cell.drift:+z.2f}" if cell.probe is None else _kept(cell.probe.predicted)
        marked[rows.index(cell.p), columns.index(cell.k)] = Tile(value, tone, 0.22, sign)
        words.append(f"P {cell.p}, K {cell.k}: {value}, {meaning}")
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


def _dimension_curves(title: str, cells: Sequence[ForecastCell]) -> Chart:
    """Drift over the dimension for a few batch shapes."""
    dims = sorted({cell.dim for cell in cells})
    at = {(cell.p, cell.k, cell.dim): cell.drift for cell in cells}
    shapes = _some(sorted({(cell.p, cell.k) for cell in cells}, key=lambda s: (s[0] * s[1], s)))
    series = [
        Series(f"P {p}, K {k}", range(len(dims)), [at[p, k, dim] for dim in dims])
        for p, k in shapes
    ]
    ticks = {float(i): f"{dim:,}" for i, dim in enumerate(dims)}
    note = f"up to {NO_DRIFT:g} nothing shrinks, above {DANGEROUS:g} the risk is high"
    return curves(title, series, x_label="dimension", x_ticks=ticks, note=note, log=False)


def _probe_charts(cells: Sequence[ForecastCell]) -> list[Chart]:
    by_size = sorted(cells, key=lambda cell: cell.p * cell.k * cell.dim)
    charts: dict[str, list[Series]] = {}
    for cell, probe in _some([(cell, cell.probe) for cell in by_size if cell.probe is not None]):
        name, start = f"P {cell.p}, K {cell.k}, dim {cell.dim}", probe.scales[0] or 1.0
        lines = {
            "Mean distance over its start": [scale / start for scale in probe.scales],
            "Drift": probe.drifts,
            "Mode drift": probe.modes,
        }
        for title, values in lines.items():
            if not all(map(math.isnan, values)):
                charts.setdefault(title, []).append(Series(name, range(len(values)), values))
    return [curves(title, series) for title, series in charts.items()]


def _some(sizes: list[Any]) -> list[Any]:
    """The smallest, the largest and some between."""
    if len(sizes) <= _LINES:
        return sizes
    return [sizes[round(i * (len(sizes) - 1) / (_LINES - 1))] for i in range(_LINES)]


# Races and tables.


def _race_figures(result: RaceResult) -> dict[str, object]:
    first = result.entrants[0]
    own = next(one for one in result.entrants if one.strategy == result.own)
    return {
        "R@1 on train, in the race": percent(first.recall),
        **({"R@1 on train, own strategy": percent(own.recall)} if first != own else {}),
        "R@1 on train, untrained": percent(result.race.start),
        "drift": _signed(first.drift),
    }


def race_table(result: RaceResult) -> Table:
    """The strategies of a race, best first."""
    table = Table(["strategy", "drift", "steps", RECALL, "scale left", "result"])
    for entrant in result.entrants:
        table.add(
            Cell(str(entrant.strategy), note="the run's own" * (entrant.strategy == result.own)),
            Cell(_signed(entrant.drift), entrant.drift),
            entrant.steps,
            *map(share_cell, (entrant.recall, entrant.scale)),
            result_cell(entrant.result),
        )
    return table


def alternatives_table(forecast: Forecast) -> Table:
    """The other strategies, each by its worst shape."""
    head = ["strategy", "largest drift", "shapes that shrink", "at worst", "largest mode drift"]
    table = Table(head)
    for strategy in dict.fromkeys(cell.strategy for cell in forecast.alternatives):
        cells = [cell for cell in forecast.alternatives if cell.strategy == strategy]
        worst = max(cells, key=lambda cell: cell.drift)
        glyph, tone, meaning = _RISKS[worst.risk]
        known = [cell.mode_drift for cell in cells if not math.isnan(cell.mode_drift)]
        table.add(
            str(strategy),
            Cell(_signed(worst.drift), worst.drift),
            f"{sum(cell.risk != 'none' for cell in cells)} of {len(cells)}",
            Cell(f"{glyph} {meaning}", style=f"whole {tone}"),
            _mode_cell(max(known, default=None)),
        )
    return table


def figures_table(cells: Sequence[ForecastCell], *, strategies: bool = False) -> Table:
    """Every figure of each batch shape and dimension; with `strategies`, also whose it is."""
    probed = cells[0].probe is not None
    head = ["P", "K", "dim", "drift", "spread", "diameter", "loss", "bound (17)", "mode drift"]
    head += [*["scale kept", "mode drift, probed"] * probed, "risk"]
    rows: list[list[object]] = []
    for cell in cells:
        row: list[object] = [*[str(cell.strategy)] * strategies, cell.p, cell.k, cell.dim]
        row += [Cell(_signed(cell.drift), cell.drift), cell.spread, cell.diameter, cell.loss]
        row.append(Cell(number(cell.bound) if cell.bound > 0 else "vacuous", cell.bound))
        row.append(_mode_cell(None if cell.modes is None else cell.modes.value))
        if probed:
            probe = cell.probe
            row.append(share_cell(None if probe is None else probe.predicted))
            row.append(_mode_cell(None if probe is None else probe.mode_drift))
        glyph, tone, _ = _RISKS[cell.risk]
        rows.append([*row, Cell(f"{glyph} {cell.risk}", style=f"whole {tone}")])
    keys = 3 + strategies
    return Table([*["strategy"] * strategies, *head], rows, first=24, sortable=True, keys=keys)


def _kept(share: float) -> str:
    if share < 1e-4:
        return "→ 0"
    return percent(share) if share < 10 else f"x {number(share, 2)}"


def _signed(drift: float) -> str:
    return f"{drift:+z.3f}"


def _mode_cell(drift: float | None) -> Cell:
    return Cell("–") if drift is None or math.isnan(drift) else Cell(f"{drift:+z.2f}", drift)
