"""The report of one run, or of several side by side: one page from their run directories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from uncollapse.report.run_page import make_run_page
from uncollapse.report.run_view import view_runs
from uncollapse.training import Run

__all__ = ["run_report", "write_report"]


def run_report(
    runs: Sequence[Run | str | Path],
    path: str | Path,
    *,
    warn: Callable[[str], None] | None = None,
) -> Path:
    """Write one page about the runs: verdicts, curves, config, maps before and after, pictures.

    Everything is read from the run directories; neither dataset nor network is needed. Verdicts,
    maps and pictures are of each run's first evaluation split as it was measured; where it was not,
    a sentence says so. Files that are not as the run left them are named on the page, and each is
    told to `warn`.
    """
    views = view_runs(runs)
    written = make_run_page(views).save(path)
    for text in (text for view in views for text in view.warnings):
        if warn is not None:
            warn(text)
    return written


def write_report(run: Run | str | Path, *, warn: Callable[[str], None] | None = None) -> Path:
    """Write `report.html` into a run's own directory."""
    found = run if isinstance(run, Run) else Run.open(run)
    return run_report([found], found.path / "report.html", warn=warn)
