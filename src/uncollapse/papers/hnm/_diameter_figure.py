"""A figure of trained networks: train the grids of its panels, measure, judge, draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

from uncollapse._base.files import write_csv
from uncollapse.papers._compare import Claim, Comparison, publish, spread
from uncollapse.papers._item import Item, Made, Request
from uncollapse.papers._page import Table
from uncollapse.papers._study import Cells, Study, Trained, about_together
from uncollapse.papers.hnm._diameter_plot import draw
from uncollapse.papers.hnm._directions import RULES, beyond, claims_of, through_training
from uncollapse.papers.hnm._grid import Grid
from uncollapse.papers.hnm._point import Point, measure
from uncollapse.papers.hnm._where import STATES, below_start, bound_state, unsettled, where_bound
from uncollapse.training import TrainingError

__all__ = ["DiameterFigure", "Panel", "figure_item"]

_HEADING = (
    "N",
    "P × K",
    "d",
    "before",
    "after",
    "left",
    "collapsed",
    "(17)",
    "(17) is",
    "drift",
    "R@1, %",
    "mAP, %",
)


@dataclass(frozen=True)
class Panel:
    """One plot: the diameter against the batch size or the dimension (`axis`).

    `title` is what tells it from the other panel, beyond what its grid says.
    """

    axis: str
    study: Study[Grid]
    margin: float = 0.0
    title: str = ""

    @property
    def short(self) -> str:
        """What tells the panel's rows in a table."""
        words = self.title or ("batch size" if self.axis == "batch" else "dimension")
        return f"{words}, margin {self.margin:g}" if self.margin else words

    def heading(self, grid: Grid) -> str:
        """What the panel shows, in a line."""
        if self.axis == "batch":
            fixed = f"batch size at d = {grid.dim}"
        elif isinstance(grid.batch, int):
            fixed = f"dimension at N = {grid.batch}"
        else:
            fixed = "dimension at P = {}, K = {}".format(*grid.batch)
        prefix = f"{self.title}: " if self.title else ""
        return f"{prefix}{fixed}, margin {self.margin:g}"

    def cells(self, grid: Grid) -> Cells:
        """The runs of the panel."""
        return grid.cells(self.axis, self.margin)


@dataclass(frozen=True)
class DiameterFigure:
    """A figure: its panels, and what the paper says of it beyond what it says of every panel."""

    name: str
    title: str
    panels: Sequence[Panel]
    more: Callable[[Sequence[Sequence[Point]]], list[Claim]] | None = None


@dataclass(frozen=True)
class _Shown:
    """A panel with its runs."""

    panel: Panel
    heading: str
    points: Sequence[Point]

    @property
    def plot(self) -> tuple[str, str, Sequence[Point]]:
        return self.heading, self.panel.axis, self.points


def figure_item(figure: DiameterFigure) -> Item:
    """The figure as an item at all three scales."""
    return Item.of(figure.name, partial(_make, figure))


def _make(figure: DiameterFigure, request: Request) -> Made:
    shown, trained = _train(figure.panels, request)
    points = [one.points for one in shown]
    claims = [c for one in shown for c in claims_of(one.points, one.panel.axis, one.panel.short)]
    claims += figure.more(points) if figure.more is not None else []
    notes = [note for one in trained for note in one.notes]
    for tell in (where_bound, below_start, unsettled, through_training, beyond):
        notes += [tell(one.points, one.panel.axis, one.panel.short) for one in shown]
    title = f"HNM {figure.title} ({request.scale})"
    rows = [[one.heading, *point.row()] for one in shown for point in one.points]
    runs = request.folder / f"{figure.name}-runs.csv"
    write_csv(runs, ["panel", *Point.heading()], rows)
    made = publish(
        request,
        title,
        Comparison(claims=claims),
        about=about_together(trained, request),
        notes=[*filter(None, dict.fromkeys(notes)), RULES],
        more=[_cell_table(one) for one in shown],
        figure=draw([one.plot for one in shown], title),
    )
    page, comma, *pictures = made.files
    return replace(made, files=[page, comma, runs, *pictures])


def _train(panels: Sequence[Panel], request: Request) -> tuple[list[_Shown], list[Trained]]:
    """Make the runs of all panels, each once, and measure those that finished."""
    grids = [panel.study.setup(request) for panel in panels]  # all data is there, or nothing begins
    cells = [panel.cells(grid) for panel, grid in zip(panels, grids, strict=True)]
    trained = []
    for study in {id(panel.study): panel.study for panel in panels}.values():
        mine = [c for panel, c in zip(panels, cells, strict=True) if panel.study is study]
        trained.append(study.train(request, {name: c[name] for c in mine for name in c}))
    runs = {name: found for one in trained for name, found in one.runs.items()}
    points = {name: [measure(run) for run in found] for name, found in runs.items()}
    shown = []
    for panel, grid, names in zip(panels, grids, cells, strict=True):
        found = [point for name in names for point in points[name]]
        if not found:
            lost = [one.error or one.status for some in trained for one in some.lost]
            why = f": {lost[0]}" if lost else ""
            raise TrainingError(f"no run of {panel.heading(grid)!r} finished{why}")
        shown.append(_Shown(panel, panel.heading(grid), found))
    return shown, trained


def _cell_table(shown: _Shown) -> Table:
    """One row per batch shape and dimension: means over its runs."""

    def cell(p: Point) -> tuple[int, int, int]:
        return p.batch, p.p or 0, p.dim

    rows = []
    for (batch, p, dim), found in groupby(sorted(shown.points, key=cell), cell):
        mine = list(found)
        mean, std = spread([one.end for one in mine])
        rows.append(
            [
                str(batch),
                f"{p} × {batch // p}" if p else "any",
                str(dim),
                f"{_mean([one.start for one in mine]):.3g}",
                f"{mean:.3g}" + (f" ± {std:.1g}" if len(mine) > 1 else ""),
                _percent(_mean([one.left for one in mine])),
                f"{sum(one.collapsed for one in mine)} of {len(mine)}",
                f"{_mean([one.bound for one in mine]):.3g}",
                _states(mine),
                f"{_mean([one.drift for one in mine]):+.3f}",
                _score([one.recall_start for one in mine], [one.recall for one in mine]),
                _score([one.mean_ap_start for one in mine], [one.mean_ap for one in mine]),
            ]
        )
    return Table(
        _HEADING,
        rows,
        f"{shown.heading} (means over the runs of a cell; scores untrained → trained)",
    )


def _score(before: Sequence[float], after: Sequence[float]) -> str:
    """From the untrained network to the trained one; NaN where nothing was evaluated, or not so."""
    start, end = _mean(before), _mean(after)
    if not math.isfinite(end):
        return "-"
    return f"{100 * start:.1f} → {100 * end:.1f}" if math.isfinite(start) else f"{100 * end:.1f}"


def _states(points: Sequence[Point]) -> str:
    """What (17) with the hardest triplet was in the runs of a cell."""
    found = [bound_state(one.end, one.bound) for one in points]
    counts = {state: found.count(state) for state in STATES if state in found}
    if len(counts) == 1:
        return found[0]
    return ", ".join(f"{state} {count} of {len(found)}" for state, count in counts.items())


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
