"""The command line: `uncollapse COMMAND`. A user's mistake is one red line and exit code 2."""

import sys
from importlib import import_module
from typing import Annotated

import typer

from uncollapse._version import __version__
from uncollapse.cli import embed
from uncollapse.cli.printing import run

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

_PANELS = {
    "Start here": "demo diagnose stuck forecast",
    "Train and judge": "train evaluate compare verify suspects sweep report",
    "Use and look up": "embed search repair datasets reproduce",
}
for _panel, _names in _PANELS.items():
    for _name in _names.split():
        _module = import_module(f"uncollapse.cli.{_name}")
        _numbers = getattr(_module, "NUMBERS", None)
        app.command(_name, rich_help_panel=_panel, context_settings=_numbers)(_module.command)
# Two commands in one file: both put a run's network to use.
app.command("export", rich_help_panel="Use and look up")(embed.export_command)


def main() -> None:
    """Run the command line on sys.argv and exit."""
    sys.exit(run(app, sys.argv[1:]))


def _version(wanted: bool) -> None:
    if wanted:
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
