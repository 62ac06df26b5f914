"""Make one run, wherever this process is: locked against a second writer, errors caught."""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from uncollapse._base.lock import FileLock
from uncollapse.sweep.job import Job, run_status
from uncollapse.training import Run, measure_run, parse_config, train
from uncollapse.training.measures import measures_file

__all__ = ["ONE_THREAD", "failure", "perform"]

# What keeps BLAS, OpenMP and numba at one thread; set before they are loaded.
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)
_SIGN_OF_LIFE = 10.0  # seconds; a lock is taken over after several times as long


def perform(config: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Train into `path`, from its last checkpoint if it has one; say how it ended.

    A run of an earlier version, which did not measure itself, is measured. A run that another
    process is writing is waited for. Returns `status`, `error`, `seconds` and, of a failure, its
    `traceback`.
    """
    begun = time.monotonic()
    place = Path(path)
    place.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    try:
        with _alone(place / ".lock"):
            job = Job(place.name, parse_config(config))
            status = run_status(job, place.parent)
            if status is None:
                status = train(job.config, place, resume=True).summary["status"]
            if status != "interrupted" and not measures_file(place).is_file():
                measure_run(Run(place))
    except Exception as error:
        return failure(_say(error), time.monotonic() - begun, traceback.format_exc())
    return {"status": status, "error": None, "seconds": round(time.monotonic() - begun, 3)}


def failure(error: str, seconds: float, trace: str = "") -> dict[str, Any]:
    """The result of a run that failed.

    >>> failure("killed", 1.0)
    {'status': 'failed', 'error': 'killed', 'seconds': 1.0, 'traceback': ''}
    """
    return {"status": "failed", "error": error, "seconds": round(seconds, 3), "traceback": trace}


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the run's lock, refreshed so that another machine sees that its holder lives."""
    ended = threading.Event()
    with FileLock(path) as lock:

        def refresh() -> None:
            while not ended.wait(_SIGN_OF_LIFE):
                lock.refresh()

        threading.Thread(target=refresh, daemon=True, name=f"lock-{os.getpid()}").start()
        try:
            yield
        finally:
            ended.set()


def _say(error: Exception) -> str:
    ours = type(error).__module__.startswith("uncollapse.")  # written for people
    text = " ".join(str(error).split())
    return text if ours else f"{type(error).__name__}: {text}"
