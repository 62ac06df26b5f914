"""Run many jobs on an engine: done ones are kept, others go on, failures are written down."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from uncollapse._base.check import InputError, check_int
from uncollapse.sweep.board import Board
from uncollapse.sweep.job import Job, Outcome, forget_failure, past_outcome, record
from uncollapse.sweep.local import LocalEngine

if TYPE_CHECKING:
    from uncollapse._base.progress import Console

__all__ = ["Engine", "cores", "drive", "run_jobs"]


class Engine(Protocol):
    """Where runs are made. `collect` waits for results; `close` ends what is under way."""

    out: Path

    @property
    def slots(self) -> int:
        """How many runs may be under way at once."""

    def submit(self, job: Job) -> None:
        """Start a run."""

    def collect(self, timeout: float) -> list[tuple[Job, Mapping[str, Any]]]:
        """Results that came within the time."""

    def close(self) -> None:
        """End what is under way, saved, and give back what is held."""


def run_jobs(
    jobs: Iterable[Job],
    out: str | Path,
    *,
    processes: int | None = None,
    retry_failed: bool = False,
    console: Console | None = None,
) -> list[Outcome]:
    """Make the runs in processes of this machine, one BLAS thread each; outcomes in their order.

    Each job is `training.train(job.config, out / job.name, resume=True)`. Runs that are finished or
    were stopped by the guard are not repeated, interrupted ones resume; a failing one is recorded
    and the others go on. A failed one is tried again only with `retry_failed`. `processes` is the
    number of cores by default. Killed at any moment and called again, it ends as if left alone.
    """
    jobs, folder = list(jobs), Path(out)
    count = cores() if processes is None else check_int("processes", processes)
    with Board(console, total=len(jobs)) as board:
        found = drive(jobs, LocalEngine(folder, count), board, retry_failed=retry_failed)
    return [found[job.name] for job in jobs]


def cores() -> int:
    """The cores this process may use.

    >>> cores() >= 1
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def drive(
    jobs: Iterable[Job],
    engine: Engine,
    board: Board,
    *,
    retry_failed: bool = False,
    most: int | None = None,
    deadline: float | None = None,
    on_outcome: Callable[[Outcome], None] | None = None,
) -> dict[str, Outcome]:
    """Make the runs on any engine; outcomes by name, each told to `on_outcome` when it is known.

    A job is taken from `jobs` when there is room for it, so a search may decide late. At most
    `most` runs are begun, and none after `deadline` (of `time.monotonic()`).
    """
    engine.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Outcome] = {}
    running: set[str] = set()

    def settle(outcome: Outcome) -> None:
        found[outcome.name] = outcome
        board.ended(outcome)
        if on_outcome is not None:
            on_outcome(outcome)

    left = _to_make(jobs, engine.out, retry_failed, settle)
    room = itertools.count() if most is None else iter(range(most))
    try:
        while True:
            late = deadline is not None and time.monotonic() > deadline
            while len(running) < engine.slots and not late and next(room, None) is not None:
                job = next(left, None)
                if job is None:
                    break
                forget_failure(job, engine.out)
                engine.submit(job)
                running.add(job.name)
                board.began(job, engine.out / job.name)
            if not running:
                return found
            for job, result in engine.collect(board.period):
                running.discard(job.name)
                settle(record(job, engine.out, result))
            board.refresh()
    finally:
        engine.close()


def _to_make(
    jobs: Iterable[Job], out: Path, retry_failed: bool, settle: Callable[[Outcome], None]
) -> Iterator[Job]:
    """The jobs that have work left; the others are settled on the way."""
    names: set[str] = set()
    for job in jobs:
        if job.name in names:
            raise InputError("jobs", f"{job.name} twice", "a different name for each")
        names.add(job.name)
        past = past_outcome(job, out)
        if past is None or (retry_failed and past.status == "failed"):
            yield job
        else:
            settle(past)
