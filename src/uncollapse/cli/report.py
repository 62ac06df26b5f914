"""`uncollapse report`: one page about a run, or several side by side."""

from pathlib import Path
from typing import Annotated

import typer

import uncollapse as uc
from uncollapse.cli.options import must_exist
from uncollapse.cli.printing import say, status, warn


def command(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.", metavar="RUN...")],
    out: Annotated[
        Path | None,
        typer.Option(help="The page.  \\[default: report.html in the run, or here for several]"),
    ] = None,
) -> None:
    """Write a self-contained HTML page: verdict, curves, config, maps, pictures."""
    must_exist(*runs)
    if out is None:
        out = runs[0] / "report.html" if len(runs) == 1 else Path("report.html")
    with status(f"reading {len(runs)} run{'s' * (len(runs) > 1)}"):
        written = uc.report.run_report(runs, out, warn=warn)
    say(f"wrote {written}")
