"""A whole sweep in one folder: plan, runs, table; begun again it goes on where it was."""

from __future__ import annotations

from pathlib import Path

from uncollapse._base.check import InputError
from uncollapse._base.files import write_text
from uncollapse.sweep.board import Board
from uncollapse.sweep.driver import Engine, drive
from uncollapse.sweep.job import Job, Outcome, past_outcome
from uncollapse.sweep.parse import load_sweep
from uncollapse.sweep.results import Results, result_row
from uncollapse.sweep.spec import Sweep

__all__ = ["check_kept", "keep_sweep", "runs_folder", "sweep_grid"]


def runs_folder(out: str | Path) -> Path:
    """Where the runs of a sweep are."""
    return Path(out) / "runs"


def keep_sweep(sweep: Sweep, out: str | Path) -> None:
    """Write the resolved sweep into its folder, after `check_kept`."""
    check_kept(sweep, out)
    write_text(Path(out) / "sweep.toml", sweep.to_toml())


def check_kept(sweep: Sweep, out: str | Path) -> None:
    """Raise unless a sweep that has runs in this folder is a part of this one.

    Values, seeds and exclusions may be changed so that there are more runs; a run that was there
    must still be, unchanged.
    """
    place = Path(out) / "sweep.toml"
    if place.is_file() and any(runs_folder(out).glob("*/config.toml")):
        _check_part(load_sweep(place), sweep, Path(out))


def sweep_grid(
    sweep: Sweep,
    out: str | Path,
    engine: Engine,
    board: Board,
    *,
    retry_failed: bool = False,
) -> Results:
    """Make the runs of a grid that are not made yet, within the budget; the table follows."""
    named: dict[str, Job] = {job.name: job for job in sweep.jobs()}
    results = Results(Path(out), list(named))

    def add(outcome: Outcome) -> None:
        if outcome.status != "interrupted":
            results.add(result_row(sweep, named[outcome.name], outcome))

    drive(
        sorted(named.values(), key=lambda job: past_outcome(job, engine.out) is None),  # done first
        engine,
        board,
        retry_failed=retry_failed,
        most=sweep.max_runs,
        deadline=sweep.deadline(),
        on_outcome=add,
    )
    results.write()
    return results


def _check_part(before: Sweep, now: Sweep, out: Path) -> None:
    allowed = "the sweep that is there, or more of it; give another --out for a different one"
    if (before.search is None) != (now.search is None) or before.axes != now.axes:
        given = f"axes {', '.join(now.axes)} where {out} has {', '.join(before.axes)}"
        raise InputError("sweep", given, allowed)
    if before.search is not None:
        if before.base != now.base or before.seeds != now.seeds:
            raise InputError("base", f"another one than in {out}", allowed)
        return
    jobs = {job.name: job for job in now.jobs()}
    for job in before.jobs():
        found = jobs.get(job.name)
        if found is None:
            raise InputError("grid", f"no run {job.name}, which {out} has", allowed)
        if found.config != job.config:
            old, new = (one.config.model_dump() for one in (job, found))
            sections = [key for key in old if old[key] != new[key]]
            given = f"another [{sections[0]}] for {job.name} than in {out}"
            raise InputError("base", given, allowed)
