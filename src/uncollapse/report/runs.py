"""The report of one run, or of several side by side: one page from their run directories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from uncollapse.report.run_page import make_run_page
from uncollapse.report.run_view import view_runs
from uncollapse.training import Run

__all__ = ["run_report", "write_report"]


def run_report(
    runs: Sequence[Run | str | Path], path: str | Path, *, rows: int = 1500, seed: int = 0
) -> Path:
    """Write one page about the runs: verdicts, curves, config, maps before and after, pictures.

    Verdicts, maps and pictures come from at most `rows` samples of each run's first evaluation
    split, embedded again; where the data or the checkpoint is not there, a sentence says so.
    """
    return make_run_page(view_runs(runs, rows, seed)).save(path)


def write_report(run: Run | str | Path) -> Path:
    """Write `report.html` into a run's own directory."""
    found = run if isinstance(run, Run) else Run.open(run)
    return run_report([found], found.path / "report.html")
