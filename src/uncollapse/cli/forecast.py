"""`uncollapse forecast`: will this run collapse? Asked before training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["command"]


def command(
    config: Annotated[Path, typer.Argument(help="The run as a TOML file.")],
    p: Annotated[str, typer.Option("--p", help="Classes per batch.")] = "2,4,8,18",
    k: Annotated[str, typer.Option("--k", help="Samples per class.")] = "2,4,8,16,32",
    dim: Annotated[
        str | None, typer.Option(help="Embedding dimensions.  [default: the config's]")
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key.")
    ] = None,
    data_root: Annotated[Path | None, typer.Option(help="Where the dataset is.")] = None,
    probe: Annotated[
        int, typer.Option(help="Train each shape this many steps as well (at least 10).", min=0)
    ] = 0,
    c: Annotated[float, typer.Option("--c", help="The constant of HNM (17).", min=0.0)] = 2.0,
    out: Annotated[Path | None, typer.Option(help="Folder for the table and the map.")] = None,
) -> None:
    """Foretell collapse at initialisation, for batch shapes, dimensions and strategies."""
    from rich.console import Console
    from rich.progress import Progress

    from uncollapse.training import load_config
    from uncollapse.training.forecasting import forecast_run, forecast_tables, save_forecast

    settings = load_config(config, changes or []).with_root(data_root)
    console = Console()
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("forecasting", total=None)
        found = forecast_run(
            settings,
            _numbers("--p", p),
            _numbers("--k", k),
            _numbers("--dim", dim) if dim else None,
            c=c,
            probe_steps=probe,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    console.print(*forecast_tables(found), sep="\n")
    console.print(f"[bold]recommended[/bold]  {found.reason}", highlight=False)
    console.print(
        "HNM (17) with c = 2 is a forecast, not a guarantee: real training has violated it."
    )
    if out is not None:
        for path in save_forecast(found, out):
            console.print(f"wrote {path}", highlight=False, soft_wrap=True)


def _numbers(option: str, text: str) -> list[int]:
    from uncollapse._check import InputError

    try:
        found = [int(word) for word in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise InputError(option, repr(text), "whole numbers of at least 1, such as 2,4,8")
    return found
