"""The command line: `uncollapse COMMAND`. A user's mistake is one red line and exit code 2."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from uncollapse.cli import datasets, embed, forecast, reproduce, train
from uncollapse.cli.errors import run

__all__ = ["app", "main"]

_ABOUT = """
Train embeddings that don't collapse.

Embeddings collapse: the loss sits exactly at the margin, every class is one blob. uncollapse
measures it, explains it and avoids it.

[bold]Start here:[/bold]  uncollapse reproduce --list   then   uncollapse reproduce fig4
"""

app = typer.Typer(
    help=_ABOUT,
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("train")(train.train)
app.command("evaluate")(train.evaluate)
app.command("forecast")(forecast.command)
app.command("embed")(embed.embed)
app.command("search")(embed.search)
app.command("export")(embed.export)
app.command("datasets")(datasets.command)
app.command("reproduce")(reproduce.command)


def main() -> None:
    """Run the command line on sys.argv and exit."""
    sys.exit(run(app, sys.argv[1:]))


def _version(wanted: bool) -> None:
    if wanted:
        from uncollapse import __version__

        typer.echo(f"uncollapse {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error (anywhere in the line).")
    ] = False,
) -> None:
    pass
