"""One run of many: what it is asked to be, and what became of it, from its own directory."""

from __future__ import annotations

import itertools
import json
import os
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from uncollapse._base.check import InputError, check_int
from uncollapse._base.files import DamagedFileError, read_json, write_json
from uncollapse._base.lock import FolderOwner
from uncollapse._base.progress import LiveTable
from uncollapse.training import Config, Run, measure_run, parse_config, train
from uncollapse.training.measures import measures_file
from uncollapse.training.run import find_damage

if TYPE_CHECKING:
    from uncollapse._base.progress import Console

__all__ = ["Board", "Engine", "Job", "Outcome", "cores", "drive", "perform", "run_jobs"]

_DONE = ("finished", "stopped")
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
    """What became of a job.

    Args:
        name: the job's.
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

    @property
    def run(self) -> Run:
        """The run, to read its metrics from."""
        return Run.open(self.path)


def past_outcome(job: Job, out: Path) -> Outcome | None:
    """What an earlier sweep left of this job: done or failed; None where there is work to do."""
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
    """`finished` or `stopped` if this very run was made; None otherwise."""
    # A run that was made otherwise is not this one: training says what differs, or goes on. So it
    # does where a file is damaged.
    try:
        status = run.summary.get("status")
        made = status in _DONE and run.config == job.config and not find_damage(run)
    except (OSError, DamagedFileError):
        return None
    return status if made else None


def perform(config: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Train into `path`, from its last checkpoint if it has one; say how it ended.

    A run of an earlier version, which did not measure itself, is measured. A run that another
    process is writing is waited for. Returns `status`, `error`, `seconds` and, of a failure, its
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


_COLORS = {"finished": "green", "stopped": "yellow", "failed": "red", "interrupted": "yellow"}
_NUMBERS = ("step", "loss", "diameter", "R@1", "seconds")
_COLUMNS = ("run", *_NUMBERS, "verdict")
_TAIL = 4096  # bytes of a log that hold its last lines


class Board:
    """Runs under way with their last logged figures; plain lines where there is no terminal."""

    def __init__(self, console: Console | None = None, *, total: int | None = None) -> None:
        self.total = total
        self.period = 0.5  # seconds between two looks
        self._counts: dict[str, int] = {}
        self._running: dict[str, tuple[Job, Path, float]] = {}
        self._begun = time.monotonic()
        self._shown = LiveTable(console)

    def __enter__(self) -> Board:
        self._shown.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._shown.__exit__(*_)
        self._shown.line((self._counted(), ""))

    @property
    def console(self) -> Console:
        """Where it is shown."""
        return self._shown.console

    def began(self, job: Job, path: Path) -> None:
        """A run is under way."""
        self._running[job.name] = job, path, time.monotonic()

    def ended(self, outcome: Outcome) -> None:
        """A run is over; one that was over before is only counted."""
        self._counts[outcome.status] = self._counts.get(outcome.status, 0) + 1
        if self._running.pop(outcome.name, None) is None:
            return
        known = sum(self._counts.values())
        place = f"{known}/{self.total}" if self.total else str(known)
        error = f"  {outcome.error}" if outcome.error else ""
        self._shown.line(
            (f"{place}  {outcome.name}  ", ""),
            (outcome.status, _COLORS[outcome.status]),
            (f"  {outcome.seconds:.1f} s{error}", ""),
        )

    def refresh(self) -> None:
        """Draw the table anew, where it is drawn at all."""
        self._shown.draw(_COLUMNS, [self._row(name) for name in self._running], self._counted())

    def _row(self, name: str) -> list[str]:
        job, path, begun = self._running[name]
        seen = _last_figures(path / "metrics.jsonl")
        return [
            name,
            f"{seen.get('step', 0)}/{job.config.train.steps}",
            *(f"{seen[key]:.3g}" if key in seen else "" for key in ("loss", "diameter")),
            str(seen.get("recall@1", "")),
            f"{time.monotonic() - begun:.0f}",
            str(seen.get("verdict", "")),
        ]

    def _counted(self) -> str:
        known = sum(self._counts.values())
        parts = [f"{count} {status}" for status, count in self._counts.items()]
        parts += [f"{len(self._running)} running"] * bool(self._running)
        if self.total:
            parts.append(f"{self.total - known - len(self._running)} to come")
        return f"{', '.join(parts)}; {time.monotonic() - self._begun:.0f} s"


def _last_figures(path: Path) -> dict[str, Any]:
    """The newest value of each key among the last lines of a log."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL))
            lines = file.read().split(b"\n")[:-1]
    except OSError:
        return {}
    figures: dict[str, Any] = {}
    for line in lines:
        try:
            values = json.loads(line)
        except ValueError:  # the first may be cut in two
            continue
        figures |= values
        keys = [k for k in values if k.endswith("recall@1") and "fine/" not in k]
        if keys:
            figures["recall@1"] = f"{values[keys[0]]:.1%} {keys[0].partition('/')[0]}"
    return figures


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
    from uncollapse.sweep.engines import LocalEngine

    jobs, folder = list(jobs), Path(out)
    count = cores() if processes is None else check_int("processes", processes)
    with Board(console, total=len(jobs)) as board:
        outcomes = drive(jobs, LocalEngine(folder, count), board, retry_failed=retry_failed)
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
    board: Board,
    *,
    retry_failed: bool = False,
    most: int | None = None,
    deadline: float | None = None,
    on_outcome: Callable[[Job, Outcome], None] | None = None,
) -> dict[str, Outcome]:
    """Make the runs on any engine; outcomes by name.

    `on_outcome(job, outcome)` is called for each that has ended, as soon as that is known.

    A job is taken from `jobs` when there is room for it, so a search may decide late. At most
    `most` runs are begun, and none after `deadline` (of `time.monotonic()`).
    """
    engine.out.mkdir(parents=True, exist_ok=True)
    outcomes: dict[str, Outcome] = {}
    running: set[str] = set()

    def settle(job: Job, outcome: Outcome) -> None:
        outcomes[job.name] = outcome
        board.ended(outcome)
        if on_outcome is not None and outcome.status != "interrupted":
            on_outcome(job, outcome)

    left = _to_make(jobs, engine.out, retry_failed, settle)
    room = itertools.count() if most is None else iter(range(most))
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
                board.began(job, engine.out / job.name)
            if not running:
                return outcomes
            for job, result in engine.collect(board.period):
                running.discard(job.name)
                path = engine.out / job.name
                if result["status"] == "failed":
                    write_json(path / "failure.json", dict(result))
                values = (result[key] for key in ("error", "seconds"))
                settle(job, Outcome(job.name, result["status"], path, *values))
            board.refresh()
    finally:
        engine.close()


def _to_make(
    jobs: Iterable[Job], out: Path, retry_failed: bool, settle: Callable[[Job, Outcome], None]
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
            settle(job, past)
