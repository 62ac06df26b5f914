"""The command line: `uncollapse COMMAND`. A user's mistake is one red line and exit code 2."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from uncollapse.cli import (
    datasets,
    demo,
    diagnose,
    embed,
    evaluate,
    forecast,
    report,
    reproduce,
    search,
    suspects,
    sweep,
    train,
    verify,
)
from uncollapse.cli.errors import run

__all__ = ["app", "main"]

_ABOUT = """
Train embeddings that don't collapse.

Is the loss stuck at the margin? Is each class one blob? Forecast, catch, cure and show it.

"""

app = typer.Typer(
    help=_ABOUT,
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_START, _RUNS, _USE = "Start here", "Train and judge", "Use and look up"
for _name, _function, _panel in (
    ("demo", demo.command, _START),
    ("diagnose", diagnose.command, _START),
    ("forecast", forecast.command, _START),
    ("train", train.train_command, _RUNS),
    ("evaluate", evaluate.evaluate_command, _RUNS),
    ("verify", verify.verify_command, _RUNS),
    ("suspects", suspects.suspects_command, _RUNS),
    ("sweep", sweep.command, _RUNS),
    ("report", report.command, _RUNS),
    ("embed", embed.embed_command, _USE),
    ("search", search.search_command, _USE),
    ("datasets", datasets.command, _USE),
    ("reproduce", reproduce.command, _USE),
):
    app.command(_name, rich_help_panel=_panel)(_function)


def main() -> None:
    """Run the command line on sys.argv and exit."""
    sys.exit(run(app, sys.argv[1:]))


def _version(wanted: bool) -> None:
    if wanted:
        from uncollapse._version import __version__

        typer.echo(f"uncollapse {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error (anywhere on the line).")
    ] = False,
) -> None:
    pass
