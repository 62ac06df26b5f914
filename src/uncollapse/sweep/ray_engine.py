"""Runs as tasks of a Ray cluster, which must share the sweep's folder (and the data) by path."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uncollapse._base.extras import import_extra
from uncollapse.sweep.job import Job
from uncollapse.sweep.one_run import failure, perform

__all__ = ["RayEngine"]

_STORE = 100_000_000  # bytes; what passes between processes is a config and a result


class RayEngine:
    """Each run is a task of one CPU and one BLAS thread; lost with its worker, it is started again.

    It then goes on from the run's last checkpoint, so every node must see the folder `out` under
    the same path. Without `address` a cluster of this machine's cores is started, and ended with
    the engine; nothing is reported to anyone and no dashboard is opened.
    """

    def __init__(
        self, out: Path, slots: int | None = None, address: str | None = None, retries: int = 2
    ) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self._ray = import_extra("ray", "ray")
        self.out, self.retries = out.absolute(), retries
        local = {"include_dashboard": False, "num_cpus": slots, "object_store_memory": _STORE}
        self._ray.init(
            address=address,
            namespace="uncollapse",
            log_to_driver=False,
            logging_level="error",
            **({} if address else local),
        )
        self.slots = slots or max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        self._task = self._ray.remote(num_cpus=1, max_retries=retries)(perform)
        self._running: dict[Any, tuple[Job, float]] = {}

    def submit(self, job: Job) -> None:
        """Hand a run to the cluster."""
        task = self._task.remote(job.config.to_values(), str(self.out / job.name))
        self._running[task] = job, time.monotonic()

    def collect(self, timeout: float) -> list[tuple[Job, Mapping[str, Any]]]:
        """Results that came within the time."""
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=timeout)
        found: list[tuple[Job, Mapping[str, Any]]] = []
        for task in ready:
            job, begun = self._running.pop(task)
            try:
                found.append((job, self._ray.get(task)))
            except self._ray.exceptions.RayError as error:
                line = " ".join(str(error).split())
                text = f"Ray gave up on it after {self.retries + 1} tries: {line[:300]}"
                found.append((job, failure(text, time.monotonic() - begun)))
        return found

    def close(self) -> None:
        """Cancel what is under way (it resumes another time) and leave the cluster."""
        for task in self._running:
            self._ray.cancel(task, force=True)
        self._running = {}
        self._ray.shutdown()
