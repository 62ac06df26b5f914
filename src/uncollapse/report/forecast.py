"""A forecast as a page: what to choose, maps over batch shapes and dimensions, alternatives."""

from __future__ import annotations

from pathlib import Path

from uncollapse.health.drift_forecast import Cell, Forecast
from uncollapse.report.blocks import Cell as TableCell
from uncollapse.report.blocks import figures, grid, note, paragraph, table, unfold
from uncollapse.report.charts import Series, curves
from uncollapse.report.forecast_charts import RISKS, dimension_curves, risk_key, risk_map
from uncollapse.report.markup import Html, number, percent
from uncollapse.report.page import Page

__all__ = ["forecast_page", "save_forecast_page"]

_BOUND = (
    "The bound (17) is the diameter less c times the loss of the hardest triplet. It is a forecast "
    "and no guarantee: training has been seen to end below it. Where it is not above 0 it says "
    "nothing."
)


def forecast_page(found: Forecast, title: str = "Forecast", about: str = "") -> Page:
    """The page; `about` says in a sentence what was asked about."""
    page = Page(title, about or f"{found.cells[0].strategy}, before any training")
    risky = sum(one.risk == "high" for one in found.cells)
    said = f"{risky} of {len(found.cells)} shapes of {found.cells[0].strategy} are at high risk"
    worst = max((cell.risk for cell in found.cells), key=list(RISKS).index)
    glyph, tone, _ = RISKS[worst]
    page.add(said, _recommended(found), anchor="recommended", tone=tone, glyph=glyph)
    page.add("Batch shapes", _maps(found), anchor="shapes")
    page.add("Dimensions", _dimensions(found), anchor="dimensions")
    page.add("Probes", _probes(found), anchor="probes")
    page.add("Other strategies", _alternatives(found), anchor="strategies")
    page.add("All figures", _figures(found), anchor="figures")
    return page


def save_forecast_page(
    found: Forecast, path: str | Path, title: str = "Forecast", about: str = ""
) -> Path:
    """Write the page as one self-contained HTML file."""
    return forecast_page(found, title, about).save(path)


def _recommended(found: Forecast) -> Html:
    cell = found.recommended
    values: dict[str, object] = {
        "P": cell.p,
        "K": cell.k,
        "dimension": cell.dim,
        "drift": f"{cell.drift:+.3f}",
    }
    return Html(
        paragraph(f"Recommended: {found.reason}.")
        + figures(values)
        + note(
            "Drift is the pull of the loss towards one point, over the mean distance, on batches "
            "through the untrained network. Up to 0.02 nothing shrinks. Above that it depends on "
            "whether the network learns before it has shrunk, which a probe tells; above 0.25 the "
            "risk is called high without one."
        )
    )


def _maps(found: Forecast) -> Html:
    probed = found.cells[0].probe is not None
    shown = "share of the scale that would be left" if probed else "drift at initialisation"
    dims = sorted({cell.dim for cell in found.cells})
    maps = grid(
        risk_map(f"Dimension {dim}", [c for c in found.cells if c.dim == dim], small=shown)
        for dim in dims
    )
    return Html(maps + risk_key())


def _dimensions(found: Forecast) -> Html:
    if len({cell.dim for cell in found.cells}) < 2:
        return Html("")
    title = f"Drift of {found.cells[0].strategy}"
    return grid([dimension_curves(title, found.cells)], wide=True)


def _probes(found: Forecast) -> Html:
    seen = [cell for cell in found.cells if cell.probe is not None]
    if not seen:
        return Html("")
    few = sorted(seen, key=lambda cell: cell.p * cell.k * cell.dim)
    few = few if len(few) <= 4 else [few[round(i * (len(few) - 1) / 3)] for i in range(4)]
    scales, drifts = [], []
    for cell in few:
        if cell.probe is not None:
            name, steps = _name(cell), list(range(len(cell.probe.scales)))
            first = cell.probe.scales[0] or 1.0
            scales.append(Series(name, steps, [s / first for s in cell.probe.scales]))
            drifts.append(Series(name, steps, cell.probe.drifts))
    return Html(
        paragraph(
            "A copy of the network was trained for a few steps. The share of the scale that would "
            "be left is foretold from how much of it the probe left and how fast the drift fell."
        )
        + grid([curves("Mean distance over its start", scales), curves("Drift", drifts)])
    )


def _alternatives(found: Forecast) -> Html:
    if not found.alternatives:
        return Html("")
    rows = []
    for strategy in dict.fromkeys(cell.strategy for cell in found.alternatives):
        cells = [cell for cell in found.alternatives if cell.strategy == strategy]
        worst = max(cells, key=lambda cell: cell.drift)
        shrinking = sum(cell.risk != "none" for cell in cells)
        sign, _, meaning = RISKS[worst.risk]
        drift = TableCell(f"{worst.drift:+.3f}", worst.drift)
        rows.append([str(strategy), drift, f"{shrinking} of {len(cells)}", f"{sign} {meaning}"])
    head = ["strategy", "largest drift", "shapes that shrink", "at worst"]
    return Html(paragraph("The same shapes and networks, mined otherwise.") + table(head, rows))


def _figures(found: Forecast) -> Html:
    probed = found.cells[0].probe is not None
    head = ["strategy", "P", "K", "dim", "drift", "spread", "diameter", "loss", "bound (17)"]
    head += ["scale left"] * probed + ["risk"]
    rows = [_row(cell, probed) for cell in (*found.cells, *found.alternatives)]
    inside = table(head, rows, first=24, sortable=True)
    return Html(unfold(f"{len(rows)} rows", inside) + note(f"{_BOUND} Here c = {found.c:g}."))


def _row(cell: Cell, probed: bool) -> list[object]:
    bound = number(cell.bound) if cell.bound > 0 else "vacuous"
    row: list[object] = [str(cell.strategy), cell.p, cell.k, cell.dim]
    row += [TableCell(f"{cell.drift:+.3f}", cell.drift), cell.spread, cell.diameter, cell.loss]
    row.append(TableCell(bound, cell.bound))
    if probed:
        left = None if cell.probe is None else cell.probe.predicted
        row.append(TableCell("–" if left is None else percent(left), left))
    return [*row, f"{RISKS[cell.risk][0]} {cell.risk}"]


def _name(cell: Cell) -> str:
    return f"P {cell.p}, K {cell.k}, dim {cell.dim}"
