"""Run many jobs on an engine: done ones are kept, others go on, failures are written down."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from uncollapse._check import InputError, check_int
from uncollapse.sweep.board import Board
from uncollapse.sweep.job import Job, Outcome, forget_failure, past_outcome, record
from uncollapse.sweep.local import LocalEngine

__all__ = ["Engine", "drive", "run_jobs"]


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
    count = len(os.sched_getaffinity(0)) if processes is None else check_int("processes", processes)
    engine = LocalEngine(folder, count)
    with Board(console, total=len(jobs)) as board:
        return drive(jobs, engine, board, retry_failed=retry_failed)


def drive(
    jobs: Sequence[Job],
    engine: Engine,
    board: Board,
    *,
    retry_failed: bool = False,
    deadline: float | None = None,
    on_outcome: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """Make the runs on any engine; `on_outcome` is called for each as soon as it is known.

    After `deadline` (of `time.monotonic()`) no run is begun; what was not begun is left out.
    """
    if len({job.name for job in jobs}) < len(jobs):
        raise InputError("jobs", "a name twice", "a different name for each")
    engine.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Outcome] = {}

    def settle(outcome: Outcome) -> None:
        if outcome.status != "interrupted":
            found[outcome.name] = outcome
        board.ended(outcome)
        if on_outcome is not None:
            on_outcome(outcome)

    left: list[Job] = []
    for job in jobs:
        past = past_outcome(job, engine.out)
        if past is None or (retry_failed and past.status == "failed"):
            left.append(job)
        else:
            settle(past)
    left.reverse()
    running: set[str] = set()
    try:
        while left or running:
            late = deadline is not None and time.monotonic() > deadline
            if late:
                left.clear()
            while left and len(running) < engine.slots:
                job = left.pop()
                forget_failure(job, engine.out)
                engine.submit(job)
                running.add(job.name)
                board.began(job, engine.out / job.name)
            for job, result in engine.collect(board.period):
                running.discard(job.name)
                settle(record(job, engine.out, result))
            board.refresh()
    finally:
        engine.close()
    return [found[job.name] for job in jobs if job.name in found]
