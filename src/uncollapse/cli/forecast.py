"""`uncollapse forecast`: will this run collapse? Asked before training."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

import uncollapse as uc
from uncollapse._base.check import InputError, percent
from uncollapse._base.progress import progress_reporter
from uncollapse.cli import options
from uncollapse.cli.printing import say, show

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
    from uncollapse.report.forecast_page import (
        alternatives_table,
        figures_table,
        make_forecast_page,
    )
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
    strategy = forecast.cells[0].strategy
    show(replace(figures_table(forecast.cells), title=f"{strategy}, at initialisation"))
    if not race:
        if forecast.alternatives:
            title = "alternatives, same shapes, at initialisation"
            show(replace(alternatives_table(forecast), title=title))
        show(f"[bold]recommended[/bold]  {forecast.reason}")
    show(
        f"bound: HNM (17) with c = {c:.3g} is a forecast, not a guarantee: real training has "
        "violated it. mode drift: above 0.1 the loss merges the modes of a class."
    )
    written = [] if out is None else [save_rows(out / "forecast.csv", forecast.to_rows())]
    result = _race(settings, race_steps) if race else None
    if result is not None and out is not None:
        written.append(save_rows(out / "race.csv", [vars(entrant) for entrant in result.entrants]))
    about = f"{strategy} on {settings.data.name}, {settings.model.backbone}"
    for page in filter(None, (html, None if out is None else out / "forecast.html")):
        title = f"Forecast of {config.name}"
        written.append(make_forecast_page(forecast, title, about, result).save(page))
    for path in written:
        say(f"wrote {path}")
    if result is not None:
        _show_winner(result, config, changes or [], data_root)


def _race(settings: uc.Config, steps: int | None) -> uc.training.predictions.RaceResult:
    """Run the race and print its table."""
    from uncollapse.report.forecast_page import race_table
    from uncollapse.training.predictions import race_run

    with progress_reporter(True, "racing") as report:
        result = race_run(settings, steps=steps, progress=report)
    title = f"race from the untrained network, best first; own: {result.own}"
    show(replace(race_table(result), title=title))
    show(
        f"R@1: of {result.race.rows} training samples, kept out of the batches where there are "
        f"enough; untrained {percent(result.race.start)}. scale left: theirs, over that of the "
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
