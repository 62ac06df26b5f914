"""Make one run, wherever this process is: its folder's only writer, errors caught."""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from uncollapse._base.owner import FolderOwner
from uncollapse.sweep.job import Job, run_status
from uncollapse.training import Run, measure_run, parse_config, train
from uncollapse.training.measures import measures_file

__all__ = ["ONE_THREAD", "failure", "perform"]

# What keeps BLAS, OpenMP and numba at one thread; set before they are loaded.
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)


def perform(config: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Train into `path`, from its last checkpoint if it has one; say how it ended.

    A run of an earlier version, which did not measure itself, is measured. A run that another
    process is writing is waited for. Returns `status`, `error`, `seconds` and, of a failure, its
    `traceback`.
    """
    begun = time.monotonic()
    place = Path(path)
    torch.set_num_threads(1)
    try:
        with FolderOwner(place, wait=True) as owner:
            job = Job(place.name, parse_config(config))
            status = run_status(job, place.parent)
            if status is None:
                run = train(job.config, place, resume=True, owner=owner)
                status = run.summary["status"]
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


def _say(error: Exception) -> str:
    ours = type(error).__module__.startswith("uncollapse.")  # written for people
    text = " ".join(str(error).split())
    return text if ours else f"{type(error).__name__}: {text}"
