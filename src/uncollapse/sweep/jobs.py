"""One run of a sweep: its config, and its outcome as its own directory has it."""

from __future__ import annotations

import itertools
import os
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from uncollapse._base.check import InputError, check_int
from uncollapse._base.files import DamagedFileError, read_json, write_json
from uncollapse._base.lock import FolderOwner
from uncollapse._base.progress import ProgressLine
from uncollapse.training import Config, Run, measure_run, parse_config, train
from uncollapse.training.measures import find_damage, measures_file

if TYPE_CHECKING:
    from uncollapse._base.progress import Console

_DONE = ("finished", "stopped")
_PERIOD = 0.5  # seconds between two looks at the deadline
# What keeps BLAS, OpenMP and numba at one thread; set before they are loaded.
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)


@dataclass(frozen=True)
class Job:
    """A run to make; `name` is unique and is the name of its directory."""

    name: str
    config: Config


@dataclass(frozen=True)
class Outcome:
    """The outcome of a job.

    Args:
        name: that of the job.
        status: `finished`, `stopped` by the guard, `failed`, or `interrupted` (it will resume).
        path: the run's directory.
        error: why it failed, in one line.
        seconds: what its last session took.
    """

    name: str
    status: str
    path: Path
    error: str | None = None
    seconds: float = 0.0

    def __str__(self) -> str:
        error = f"  {self.error}" if self.error else ""
        return f"{self.name}  {self.status}  {self.seconds:.1f} s{error}"

    @property
    def run(self) -> Run:
        """The run, to read its metrics from."""
        return Run.open(self.path)


def past_outcome(job: Job, out: Path) -> Outcome | None:
    """The outcome that an earlier sweep left of this job; None if there is work to do."""
    run = Run(out / job.name)
    file = run.path / "failure.json"
    if file.is_file():
        try:
            values = read_json(file)
            error, seconds = str(values["error"]), float(values["seconds"])
        except (DamagedFileError, KeyError, TypeError, ValueError):
            error, seconds = f"{file} is damaged: it failed, and it is not known why", 0.0
        return Outcome(job.name, "failed", run.path, error, seconds)
    status = _run_status(job, run)
    if status is None or not measures_file(run.path).is_file():
        return None
    seconds = float(run.summary.get("seconds_of_this_session", 0.0))
    return Outcome(job.name, status, run.path, None, seconds)


def _run_status(job: Job, run: Run) -> str | None:
    """`finished` or `stopped` if a run with this config ended so; None otherwise."""
    # A run that was made otherwise is not this one: training says what differs, or goes on. So it
    # does where a file is damaged.
    try:
        status = run.summary.get("status")
        made = status in _DONE and run.config == job.config and not find_damage(run)
    except (OSError, DamagedFileError):
        return None
    return status if made else None


def perform(config: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Train into `path`, from its last checkpoint if it has one, and return how it ended.

    A run of an earlier version, which has no measures, is measured. If another process is writing
    the run, this one waits. Returns `status`, `error`, `seconds` and, of a failure, its
    `traceback`.
    """
    begun = time.monotonic()
    run = Run(Path(path), trust=True)
    torch.set_num_threads(1)
    try:
        with FolderOwner(run.path, wait=True) as owner:
            job = Job(run.path.name, parse_config(config))
            status = _run_status(job, run)
            if status is None:
                train(job.config, run.path, resume=True, owner=owner)
                status = run.summary["status"]
            if status != "interrupted" and not measures_file(run.path).is_file():
                measure_run(run)
    except Exception as error:
        ours = type(error).__module__.startswith("uncollapse.")  # written for people
        text = " ".join(str(error).split())
        text = text if ours else f"{type(error).__name__}: {text}"
        return failure(text, time.monotonic() - begun, traceback.format_exc())
    return {"status": status, "error": None, "seconds": round(time.monotonic() - begun, 3)}


def failure(error: str, seconds: float, trace: str = "") -> dict[str, Any]:
    """The result of a run that failed.

    >>> failure("killed", 1.0)
    {'status': 'failed', 'error': 'killed', 'seconds': 1.0, 'traceback': ''}
    """
    return {"status": "failed", "error": error, "seconds": round(seconds, 3), "traceback": trace}


class Engine(Protocol):
    """Where runs are made. `collect` waits for results; `close` ends the running ones."""

    out: Path

    @property
    def slots(self) -> int:
        """How many runs may be under way at once."""

    def submit(self, job: Job) -> None:
        """Start a run."""

    def collect(self, timeout: float) -> list[tuple[Job, Mapping[str, Any]]]:
        """Results that arrive within the timeout."""

    def close(self) -> None:
        """Save and end the running jobs, and release all resources."""


def run_jobs(
    jobs: Iterable[Job],
    out: str | Path,
    *,
    processes: int | None = None,
    retry_failed: bool = False,
    console: Console | None = None,
) -> list[Outcome]:
    """Make the runs in local processes, one BLAS thread each; returns outcomes in the jobs' order.

    Each job is `training.train(job.config, out / job.name, resume=True)`. Runs that are finished or
    were stopped by the guard are not repeated, interrupted ones resume; a failing one is recorded
    and the others go on. A failed one is tried again only with `retry_failed`. `processes` is the
    number of cores by default. Killed at any moment and called again, it gives the same results.
    """
    from uncollapse.sweep.engines import LocalEngine

    jobs = list(jobs)
    if processes is not None:
        check_int("processes", processes)
    engine = LocalEngine(Path(out), processes)
    outcomes = drive(jobs, engine, total=len(jobs), retry_failed=retry_failed, console=console)
    return [outcomes[job.name] for job in jobs]


def cores() -> int:
    """The cores this process may use.

    >>> cores() >= 1
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def drive(
    jobs: Iterable[Job],
    engine: Engine,
    *,
    total: int,
    retry_failed: bool = False,
    most: int | None = None,
    deadline: float | None = None,
    on_outcome: Callable[[Job, Outcome], None] | None = None,
    console: Console | None = None,
) -> dict[str, Outcome]:
    """Make the runs on any engine; outcomes by name. The console gets a line for each that ends.

    `on_outcome(job, outcome)` is called for each as soon as it has ended.

    The `total` jobs are taken from `jobs` one by one, when there is room, so a search can decide
    late. At most `most` runs are started, and none after `deadline` (in `time.monotonic()`).
    """
    engine.out.mkdir(parents=True, exist_ok=True)
    outcomes: dict[str, Outcome] = {}
    running: set[str] = set()
    begun = time.monotonic()

    def settle(job: Job, outcome: Outcome) -> None:
        outcomes[job.name] = outcome
        shown.show(len(outcomes), {})
        if on_outcome is not None and outcome.status != "interrupted":
            on_outcome(job, outcome)

    left = _to_make(jobs, engine.out, retry_failed, settle)
    room = itertools.count() if most is None else iter(range(most))
    with ProgressLine("runs", total, console) as shown:
        try:
            while True:
                late = deadline is not None and time.monotonic() > deadline
                while len(running) < engine.slots and not late and next(room, None) is not None:
                    job = next(left, None)
                    if job is None:
                        break
                    (engine.out / job.name / "failure.json").unlink(missing_ok=True)  # tried again
                    engine.submit(job)
                    running.add(job.name)
                if not running:
                    break
                for job, result in engine.collect(_PERIOD):
                    running.discard(job.name)
                    path = engine.out / job.name
                    if result["status"] == "failed":
                        write_json(path / "failure.json", dict(result))
                    ended = result["status"], path, result["error"], result["seconds"]
                    outcome = Outcome(job.name, *ended)
                    settle(job, outcome)
                    shown.note(f"{len(outcomes)}/{total}  {outcome}")
        finally:
            engine.close()
            counts = Counter(outcome.status for outcome in outcomes.values())
            parts = [f"{count} {status}" for status, count in counts.items()]
            parts.append(f"{total - len(outcomes)} to come; {time.monotonic() - begun:.0f} s")
            shown.note(", ".join(parts))
    return outcomes


def _to_make(
    jobs: Iterable[Job], out: Path, retry_failed: bool, settle: Callable[[Job, Outcome], None]
) -> Iterator[Job]:
    """The jobs with work left; the others are settled on the way."""
    names: set[str] = set()
    for job in jobs:
        if job.name in names:
            raise InputError("jobs", f"{job.name} twice", "a different name for each")
        names.add(job.name)
        past = past_outcome(job, out)
        if past is None or (retry_failed and past.status == "failed"):
            yield job
        else:
            settle(job, past)
