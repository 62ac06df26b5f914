"""`uncollapse forecast`: will this run collapse? Asked before training."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import Annotated

import typer

import uncollapse as uc
from uncollapse._base.check import InputError, percent
from uncollapse._base.progress import progress_reporter
from uncollapse._base.table import Cell, Table
from uncollapse.cli import options
from uncollapse.cli.printing import say, show

_COLORS = {"none": "green", "some": "yellow", "high": "red"}
_RECALL = "R@1 train"
_RESULTS = {"wins": "green", "shrinks": "red"}
_P, _K = "2,4,8,18", "2,4,8,16,32"
_OR = "{}.  \\[default: {}; with --race the config's]"


def command(
    config: options.ConfigArgument,
    p: Annotated[str | None, typer.Option("--p", help=_OR.format("Classes per batch", _P))] = None,
    k: Annotated[str | None, typer.Option("--k", help=_OR.format("Samples per class", _K))] = None,
    dim: Annotated[
        str | None, typer.Option(help="Embedding dimensions.  \\[default: the config's]")
    ] = None,
    changes: options.SetOption = None,
    data_root: options.DataRootOption = None,
    probe: Annotated[
        int, typer.Option(help="Also train each shape for this many steps (at least 10).", min=0)
    ] = 0,
    c: Annotated[float, typer.Option("--c", help="The constant of HNM (17).", min=0.0)] = 2.0,
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
    trust: options.TrustOption = False,
    html: options.HtmlOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the table and the page.")] = None,
) -> None:
    """Predict collapse before training, for batch shapes, dimensions and strategies."""
    options.must_exist(config)
    from uncollapse.report.forecast_page import make_forecast_page
    from uncollapse.training.predictions import forecast_run, race_budget, save_rows

    settings = uc.load_config(config, changes or []).with_root(data_root)
    uc.training.run.check_trusted(config.parent, settings, trust=trust)
    if race_steps is not None and not race:
        raise InputError.conflict("--race-steps needs --race")
    default_p, default_k = _P, _K
    if race:
        uc.training.config.better_path(config)  # is there room for the result?
        race_budget(settings, race_steps)
        if settings.batch.sampler == "pk":
            default_p, default_k = str(settings.batch.p), str(settings.batch.k)
    with progress_reporter(True, "forecasting") as report:
        forecast = forecast_run(
            settings,
            options.numbers("--p", default_p if p is None else p),
            options.numbers("--k", default_k if k is None else k),
            options.numbers("--dim", dim) if dim else None,
            c=c,
            probe_steps=probe,
            progress=report,
        )
    show(*forecast_tables(forecast, alternatives=not race))
    if not race:
        show(f"[bold]recommended[/bold]  {forecast.reason}")
    show(
        f"bound: HNM (17) with c = {c:.3g} is a forecast, not a guarantee: real training has "
        f"violated it. modes: mode drift{f' after {probe} steps' if probe else ''}; above 0.1 the "
        "loss merges the modes of a class."
    )
    written = [] if out is None else [save_rows(out / "forecast.csv", forecast.to_rows())]
    result = _race(settings, race_steps) if race else None
    if result is not None and out is not None:
        written.append(save_rows(out / "race.csv", [vars(entrant) for entrant in result.entrants]))
    about = f"{forecast.cells[0].strategy} on {settings.data.name}, {settings.model.backbone}"
    for page in filter(None, (html, None if out is None else out / "forecast.html")):
        title = f"Forecast of {config.name}"
        written.append(make_forecast_page(forecast, title, about, result).save(page))
    for path in written:
        say(f"wrote {path}")
    if result is not None:
        _show_winner(result, config, changes or [], data_root)


def _race(settings: uc.Config, steps: int | None) -> uc.training.predictions.RaceResult:
    """Run the race and print its table."""
    from uncollapse.training.predictions import race_run

    with progress_reporter(True, "racing") as report:
        result = race_run(settings, steps=steps, progress=report)
    show(race_table(result))
    show(
        f"{_RECALL}: of {result.race.rows} training samples, kept out of the batches where there "
        f"are enough; untrained {percent(result.race.start)}. left: their scale, over that of the "
        f"untrained network. The race cost {result.race.spent:.0f} training steps."
    )
    return result


def _show_winner(
    result: uc.training.predictions.RaceResult,
    config: Path,
    overrides: list[str],
    data_root: Path | None,
) -> None:
    """Write the config of the winner, and say what it changes and how to train it."""
    from uncollapse.health.race import TIE

    if not result.changes:
        show(f"[bold]{result.own} wins[/bold]: {config.name} can stay as it is")
        return
    how = f"is chosen: {TIE}" if result.race.tied else f"beats {result.own}"
    show(f"[bold]{result.winner} {how}[/bold]")
    for key, value in result.changes.items():
        was = getattr(result.own, key.rpartition(".")[2])
        say(f"  {key} = {json.dumps(value)}  (was {json.dumps(was)})")
    better = uc.training.config.save_better_config(config, result.changes, overrides)
    say(f"wrote {better}")
    words = ["uncollapse", "train", str(better), "--out", f"runs/{better.stem}"]
    words += [] if data_root is None else ["--data-root", str(data_root)]
    say(f"train it: {shlex.join(words)}", whole=True)


def forecast_tables(forecast: uc.health.Forecast, *, alternatives: bool) -> list[Table]:
    """The run's strategy for each batch shape and dimension, then a summary of its alternatives."""
    title = f"{forecast.cells[0].strategy}, at initialisation"
    probed = forecast.cells[0].probe is not None
    columns = ["P", "K", "dim", "drift", "±", "modes", "diameter", "bound", *["left"] * probed]
    own = Table([*columns, "risk"], title=title, keys=3)
    for cell in forecast.cells:
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
            Cell(cell.risk, style=_COLORS[cell.risk]),
        )
    if not forecast.alternatives or not alternatives:
        return [own]
    others = Table(
        ["strategy", "largest drift", "shrinks in", "modes"],
        title="alternatives, same shapes, at initialisation",
    )
    for strategy in dict.fromkeys(cell.strategy for cell in forecast.alternatives):
        cells = [cell for cell in forecast.alternatives if cell.strategy == strategy]
        worst = max(cells, key=lambda cell: cell.drift)
        shrinking = sum(cell.risk != "none" for cell in cells)
        others.add(
            str(strategy),
            Cell(f"{worst.drift:+.3f}", style=_COLORS[worst.risk]),
            f"{shrinking} of {len(cells)} shapes",
            _range([cell.mode_drift for cell in cells]),
        )
    return [own, others]


def race_table(result: uc.training.predictions.RaceResult) -> Table:
    """The strategies of a race, best first."""
    table = Table(
        ["strategy", "drift", "steps", _RECALL, "left", "result"],
        title=f"race from the untrained network, best first; own: {result.own}",
    )
    for entrant in result.entrants:
        table.add(
            str(entrant.strategy),
            f"{round(entrant.drift, 3) + 0.0:+.3f}",  # no -0.000
            "–" if entrant.steps is None else str(entrant.steps),
            "–" if entrant.recall is None else percent(entrant.recall),
            "–" if entrant.scale is None else f"{entrant.scale:.2g}",
            Cell(entrant.result, style=_RESULTS.get(entrant.result, "")),
        )
    return table


def _signed(drift: float) -> str:
    return "–" if math.isnan(drift) else f"{drift:+.2f}"


def _range(drifts: list[float]) -> str:
    known = [value for value in drifts if not math.isnan(value)]
    if not known:
        return "–"
    return " to ".join(dict.fromkeys(_signed(drift) for drift in (min(known), max(known))))
