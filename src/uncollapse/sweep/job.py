"""One run of many: what it is asked to be, and what became of it, from its own directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uncollapse._base.files import DamagedFileError, read_json, write_json
from uncollapse.training import Config, Run
from uncollapse.training.measures import measures_file
from uncollapse.training.summary import find_damage

__all__ = ["Job", "Outcome", "forget_failure", "past_outcome", "record", "run_status"]

_DONE = ("finished", "stopped")


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
    failure = _failure_file(run.path)
    if failure.is_file():
        error, seconds = _read_failure(failure)
        return Outcome(job.name, "failed", run.path, error, seconds)
    status = run_status(job, out)
    if status is None or not measures_file(run.path).is_file():
        return None
    seconds = float(run.summary.get("seconds_of_this_session", 0.0))
    return Outcome(job.name, status, run.path, None, seconds)


def run_status(job: Job, out: Path) -> str | None:
    """`finished` or `stopped` if this very run was made; None otherwise."""
    run = Run(out / job.name)
    # A run that was made otherwise is not this one: training says what differs, or goes on. So it
    # does where a file is damaged.
    try:
        status = run.summary.get("status")
        mine = status in _DONE and run.config == job.config and not find_damage(run)
    except (OSError, DamagedFileError):
        return None
    return status if mine else None


def record(job: Job, out: Path, result: Mapping[str, Any]) -> Outcome:
    """The outcome of a job that came back; a failure is written down beside the run."""
    path = out / job.name
    if result["status"] == "failed":
        write_json(_failure_file(path), dict(result))
    return Outcome(job.name, result["status"], path, result["error"], result["seconds"])


def forget_failure(job: Job, out: Path) -> None:
    """Let a failed job be tried again, from its last checkpoint."""
    _failure_file(out / job.name).unlink(missing_ok=True)


def _read_failure(path: Path) -> tuple[str, float]:
    try:
        found = read_json(path)
        return str(found["error"]), float(found["seconds"])
    except (DamagedFileError, KeyError, TypeError, ValueError):
        return f"{path} is damaged: it failed, and it is not known why", 0.0


def _failure_file(path: Path) -> Path:
    return path / "failure.json"
