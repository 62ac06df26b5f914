"""`uncollapse forecast`: will this run collapse? Asked before training."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uncollapse.cli.embed import TrustOption
from uncollapse.cli.file_options import must_exist
from uncollapse.cli.forecast_race import check_race, race_strategies, tell_winner
from uncollapse.cli.plain_lines import say

if TYPE_CHECKING:
    from rich.console import Console

    from uncollapse._base.table import Table
    from uncollapse.health import Forecast

__all__ = ["command"]

_COLOURS = {"none": "green", "some": "yellow", "high": "red"}
_P, _K = "2,4,8,18", "2,4,8,16,32"


def command(
    config: Annotated[Path, typer.Argument(help="The run as a TOML file.")],
    more: Annotated[
        list[Path] | None, typer.Argument(metavar="[RUN]...", help="More runs for --fit-c.")
    ] = None,
    p: Annotated[
        str | None,
        typer.Option(
            "--p", help=f"Classes per batch.  \\[default: {_P}; with --race the config's]"
        ),
    ] = None,
    k: Annotated[
        str | None,
        typer.Option(
            "--k", help=f"Samples per class.  \\[default: {_K}; with --race the config's]"
        ),
    ] = None,
    dim: Annotated[
        str | None, typer.Option(help="Embedding dimensions.  \\[default: the config's]")
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key.")
    ] = None,
    data_root: Annotated[Path | None, typer.Option(help="Where the dataset is.")] = None,
    probe: Annotated[
        int, typer.Option(help="Also train each shape for this many steps (at least 10).", min=0)
    ] = 0,
    c: Annotated[float, typer.Option("--c", help="The constant of HNM (17).", min=0.0)] = 2.0,
    fit: Annotated[
        Path | None,
        typer.Option("--fit-c", metavar="RUN...", help="Fit that constant from finished runs."),
    ] = None,
    race: Annotated[
        bool,
        typer.Option(
            "--race",
            help="Let the run's strategy and its alternatives train for a few steps each, and "
            "write the config of the best beside this one (run.better.toml).",
        ),
    ] = False,
    race_steps: Annotated[
        int | None,
        typer.Option(
            help="Total training steps of the race.  \\[default: a tenth of train.steps]", min=1
        ),
    ] = None,
    trust: TrustOption = False,
    html: Annotated[Path | None, typer.Option(help="Write a self-contained HTML page.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the table and the page.")] = None,
) -> None:
    """Predict collapse before training, for batch shapes, dimensions and strategies."""
    must_exist(config)
    from rich.console import Console

    from uncollapse._base.check import InputError
    from uncollapse._base.progress import progress_reporter
    from uncollapse.report.forecast_page import save_forecast_page
    from uncollapse.training import load_config
    from uncollapse.training.predictions import forecast_run, save_forecast
    from uncollapse.training.races import save_race
    from uncollapse.training.run import check_trusted

    settings = load_config(config, changes or []).with_root(data_root)
    check_trusted(config.parent, settings, trust=trust)
    console = Console()
    if race_steps is not None and not race:
        raise InputError("--race-steps", race_steps, "--race as well")
    shape = _P, _K
    if race:
        check_race(config, settings, race_steps)
        if settings.batch.sampler == "pk":
            shape = str(settings.batch.p), str(settings.batch.k)
    if fit is not None or more:
        c = _fitted(fit, more or [], console)
    with progress_reporter(True, "forecasting") as report:
        found = forecast_run(
            settings,
            _numbers("--p", shape[0] if p is None else p),
            _numbers("--k", shape[1] if k is None else k),
            _numbers("--dim", dim) if dim else None,
            c=c,
            probe_steps=probe,
            progress=report,
        )
    console.print(*_tables(found, alternatives=not race), sep="\n")
    if not race:
        console.print(f"[bold]recommended[/bold]  {found.reason}", highlight=False)
    console.print(
        f"bound: HNM (17) with c = {c:.3g} is a forecast, not a guarantee: real training has "
        f"violated it. modes: mode drift{f' after {probe} steps' if probe else ''}; above 0.1 the "
        "loss merges the modes of a class.",
        highlight=False,
    )
    written = [] if out is None else save_forecast(found, out)
    raced = None
    if race:
        raced = race_strategies(settings, race_steps, console)
        written += [] if out is None else save_race(raced, out)
    about = f"{found.cells[0].strategy} on {settings.data.name}, {settings.model.backbone}"
    for page in filter(None, (html, None if out is None else out / "forecast.html")):
        title = f"Forecast of {config.name}"
        written.append(save_forecast_page(found, page, title, about, raced))
    for path in written:
        say(console, f"wrote {path}")
    if raced is not None:
        tell_winner(raced, config, changes or [], data_root, console)


def _fitted(first: Path | None, more: list[Path], console: Console) -> float:
    from uncollapse._base.check import InputError
    from uncollapse.training import Run
    from uncollapse.training.predictions import before_and_after, fit_c

    if first is None:
        raise InputError("arguments", str(more[0]), "one TOML file, or runs after --fit-c")
    with console.status("reading finished runs"):
        fitted = fit_c([before_and_after(Run.open(path)) for path in (first, *more)])
    console.print(f"{fitted} (the smallest with which (17) held in all)", highlight=False)
    return fitted.c


def _tables(found: Forecast, *, alternatives: bool) -> list[Table]:
    """The own strategy for each batch shape and dimension; then its alternatives, in short."""
    from uncollapse._base.table import Cell, Table

    title = f"{found.cells[0].strategy}, at initialisation"
    probed = found.cells[0].probe is not None
    columns = ["P", "K", "dim", "drift", "±", "modes", "diameter", "bound", *["left"] * probed]
    own = Table([*columns, "risk"], title=title, keys=3)
    for cell in found.cells:
        own.add(
            str(cell.p),
            str(cell.k),
            str(cell.dim),
            f"{cell.drift:+.3f}",
            f"{cell.spread:.3f}",
            _signed(cell.mode_drift),
            f"{cell.diameter:.3g}",
            f"{cell.bound:.3g}" if cell.bound > 0 else "vacuous",
            *([] if cell.probe is None else [f"{cell.probe.predicted:.2g}"]),
            Cell(cell.risk, style=_COLOURS[cell.risk]),
        )
    if not found.alternatives or not alternatives:
        return [own]
    others = Table(
        ["strategy", "largest drift", "shrinks in", "modes"],
        title="alternatives, same shapes, at initialisation",
    )
    for strategy in dict.fromkeys(cell.strategy for cell in found.alternatives):
        cells = [cell for cell in found.alternatives if cell.strategy == strategy]
        worst = max(cells, key=lambda cell: cell.drift)
        shrinking = sum(cell.risk != "none" for cell in cells)
        others.add(
            str(strategy),
            Cell(f"{worst.drift:+.3f}", style=_COLOURS[worst.risk]),
            f"{shrinking} of {len(cells)} shapes",
            _range([cell.mode_drift for cell in cells]),
        )
    return [own, others]


def _signed(drift: float) -> str:
    return "–" if math.isnan(drift) else f"{drift:+.2f}"


def _range(drifts: list[float]) -> str:
    known = [value for value in drifts if not math.isnan(value)]
    if not known:
        return "–"
    return " to ".join(dict.fromkeys(_signed(one) for one in (min(known), max(known))))


def _numbers(option: str, text: str) -> list[int]:
    from uncollapse._base.check import InputError

    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise InputError(option, repr(text), "whole numbers of at least 1, such as 2,4,8")
    return found
