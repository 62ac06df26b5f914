"""Make a figure of trained networks: find the data, train the grid, measure, judge, draw."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from uncollapse.data import DataError, describe
from uncollapse.data.registry import list_split
from uncollapse.papers._beside import Beside, about, spread
from uncollapse.papers._csv import csv_text
from uncollapse.papers._draw import save
from uncollapse.papers._item import SCALES, Item, Request
from uncollapse.papers.hnm._diameter_plot import draw
from uncollapse.papers.hnm._directions import RULES, beyond, claims_of
from uncollapse.papers.hnm._point import Point, measure
from uncollapse.papers.hnm._study import Panel, Setup, Study
from uncollapse.sweep import Outcome, run_jobs
from uncollapse.training import TrainingError
from uncollapse.training.checkpoint import write_text

__all__ = ["trained_item"]

_HEADING = ("N", "P × K", "d", "before", "after", "left", "collapsed", "(17)", "drift", "R@1, %")


@dataclass(frozen=True)
class _Made:
    """A panel with its runs."""

    panel: Panel
    setup: Setup
    points: Sequence[Point]

    @property
    def heading(self) -> str:
        return self.panel.heading(self.setup)


def trained_item(study: Study, summary: str, needs: str, time: Mapping[str, str]) -> Item:
    """The study as an item at all three scales."""
    return Item(study.name, summary, needs, time, partial(_make, study), SCALES)


def _make(study: Study, request: Request) -> list[Path]:
    chosen = [(panel, _with_data(study, panel, request)) for panel in study.panels]
    made, outcomes = _train(chosen, request)
    folder = request.folder(study.name)
    title = f"HNM {study.title} ({request.scale})"
    plots = [(one.heading, one.panel.axis, one.points) for one in made]
    pictures = save(draw(plots, title), folder, study.name)
    beside = _beside(study, made, outcomes, request, title)
    request.console.print(beside.render())
    cells = [(one.heading, _cells(one.points)) for one in made]
    for heading, rows in cells:
        _show(request.console, heading, rows)
    runs = [[one.heading, *point.row()] for one in made for point in one.points]
    texts = {
        folder / f"{study.name}.md": _page(beside, study.name, cells),
        folder / f"{study.name}.csv": beside.csv(),
        folder / f"{study.name}-runs.csv": csv_text([["panel", *Point.heading()], *runs]),
    }
    for path, text in texts.items():
        write_text(path, text)
    return [*texts, *pictures]


def _with_data(study: Study, panel: Panel, request: Request) -> Setup:
    """The first setup of the scale whose data is there; otherwise say what to get, and where."""
    missing = []
    for setup in panel.setups[request.scale]:
        name = setup.data["name"]
        try:
            list_split(name, request.data_root, "train")
        except DataError as error:
            missing.append(f"{str(error).splitlines()[0]} (home: {describe(name).home})")
            continue
        return setup
    raise DataError(f"{study.name} --scale {request.scale} needs data. {'. Or: '.join(missing)}")


def _train(
    chosen: Sequence[tuple[Panel, Setup]], request: Request
) -> tuple[list[_Made], list[Outcome]]:
    """Make the runs of all panels, each once, and measure those that finished."""
    jobs = [panel.jobs(setup, _seeds(setup, request), request.data_root) for panel, setup in chosen]
    once = {job.name: job for some in jobs for job in some}
    # At the paper's size one run fills a GPU.
    processes = 1 if request.processes is None and request.scale == "paper" else request.processes
    outcomes = run_jobs(
        once.values(), request.runs("hnm"), processes=processes, console=request.console
    )
    for one in outcomes:
        if one.error is not None:
            request.console.print(f"{one.name} failed: {one.error}", markup=False)
    points = {one.name: measure(one) for one in outcomes if one.status == "finished"}
    made = []
    for (panel, setup), mine in zip(chosen, jobs, strict=True):
        found = [points[job.name] for job in mine if job.name in points]
        if not found:
            why = next((one.error for one in outcomes if one.error), "they were interrupted")
            raise TrainingError(f"no run of {panel.heading(setup)!r} finished: {why}")
        made.append(_Made(panel, setup, found))
    return made, outcomes


def _seeds(setup: Setup, request: Request) -> range:
    count = setup.seeds if request.seeds is None else request.seeds
    return range(request.seed, request.seed + count)


def _beside(
    study: Study, made: Sequence[_Made], outcomes: Sequence[Outcome], request: Request, title: str
) -> Beside:
    claims = [c for one in made for c in claims_of(one.points, one.panel.axis, one.panel.short)]
    if study.more is not None:
        claims += study.more([one.points for one in made])
    setups = [one.setup for one in made]
    how = about(
        request,
        study.name,
        seeds=_seeds(setups[0], request),
        seconds=sum(one.seconds for one in outcomes),
        data="; ".join(dict.fromkeys(map(_data, setups))),
        network="; ".join(dict.fromkeys(map(_network, setups))),
    )
    notes = list(dict.fromkeys(setup.differs for setup in setups))
    notes += [beyond(one.points, one.panel.axis, one.panel.short) for one in made]
    lost = sum(one.status != "finished" for one in outcomes)
    notes += [f"{lost} of {len(outcomes)} runs did not finish and are missing."] if lost else []
    return Beside(title, claims=claims, about=how, notes=[*notes, RULES])


def _data(setup: Setup) -> str:
    name = setup.data["name"]
    size = f" at {setup.data['size']} × {setup.data['size']}" if "size" in setup.data else ""
    return f"{describe(name).title}{size}"


def _network(setup: Setup) -> str:
    hidden = f" {list(setup.model['hidden'])}" if "hidden" in setup.model else ""
    return (
        f"{setup.model['backbone']}{hidden} from scratch, batch-hard triplets, {setup.steps:,} "
        f"steps of Adam at {setup.lr:g}"
    )


def _cells(points: Sequence[Point]) -> list[list[str]]:
    """A row a batch shape and dimension: means over its runs."""

    def cell(p: Point) -> tuple[int, int, int]:
        return p.batch, p.p or 0, p.dim

    rows = []
    for (batch, p, dim), found in groupby(sorted(points, key=cell), cell):
        mine = list(found)
        mean, std = spread([one.end for one in mine])
        recall = _mean([one.recall for one in mine])  # NaN where there is no evaluation split
        after = f"{mean:.3g}" + (f" ± {std:.1g}" if len(mine) > 1 else "")
        rows.append(
            [
                str(batch),
                f"{p} × {batch // p}" if p else "any",
                str(dim),
                f"{_mean([one.start for one in mine]):.3g}",
                after,
                _percent(_mean([one.left for one in mine])),
                f"{sum(one.collapsed for one in mine)} of {len(mine)}",
                f"{_mean([one.bound for one in mine]):.3g}",
                f"{_mean([one.drift for one in mine]):+.3f}",
                f"{100 * recall:.1f}" if math.isfinite(recall) else "-",
            ]
        )
    return rows


def _show(console: Console, title: str, rows: Sequence[Sequence[str]]) -> None:
    table = Table(*_HEADING, title=escape(title))
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _page(beside: Beside, name: str, cells: Sequence[tuple[str, Sequence[Sequence[str]]]]) -> str:
    lines = [beside.markdown().rstrip("\n"), "", f"![{beside.title}]({name}.png)"]
    for title, rows in cells:
        lines += ["", f"## {title}", "", "Means over the runs of a cell.", ""]
        table = [list(_HEADING), ["---"] * len(_HEADING), *rows]
        lines += [f"| {' | '.join(row)} |" for row in table]
    return "\n".join(lines) + "\n"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
