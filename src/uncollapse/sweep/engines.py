"""Where runs are made: in processes of this machine, or as tasks of a Ray cluster."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from multiprocessing.connection import wait
from pathlib import Path
from typing import IO, Any, cast

from uncollapse._base.extras import import_extra
from uncollapse.sweep.jobs import ONE_THREAD, Job, cores, failure, perform

_RETRIES = 2  # of a run whose process died
_PATIENCE = 20.0  # seconds a process may take to save its run when it is asked to end


class LocalEngine:
    """Up to `slots` runs at once, one per core by default, in processes that are reused.

    A process that dies (out of memory, killed) takes only its own run with it: that one is tried
    again, from its last checkpoint, up to `retries` times, and is then recorded as failed.
    """

    def __init__(self, out: Path, slots: int | None = None, retries: int = _RETRIES) -> None:
        self.out, self.slots, self.retries = out, slots or cores(), retries
        self._idle: list[_Process] = []
        self._busy: dict[str, _Process] = {}
        self._tries: dict[str, int] = {}

    def submit(self, job: Job) -> None:
        """Start a run in a free process."""
        process = self._idle.pop() if self._idle else _Process()
        try:
            process.send(job, self.out / job.name)
        except OSError:  # it died while idle
            process.end()
            process = _Process()
            process.send(job, self.out / job.name)
        self._busy[job.name] = process

    def collect(self, timeout: float) -> list[tuple[Job, Mapping[str, Any]]]:
        """Results that arrive within the timeout."""
        ready = set(wait([process.answers.fileno() for process in self._busy.values()], timeout))
        results: list[tuple[Job, Mapping[str, Any]]] = []
        for name, process in list(self._busy.items()):
            if process.answers.fileno() not in ready:
                continue
            job, line = process.job, process.answers.readline()
            del self._busy[name]
            if line.endswith(b"\n"):
                self._idle.append(process)
                results.append((job, json.loads(line)))
                continue
            death = process.end()
            self._tries[name] = self._tries.get(name, 0) + 1
            if self._tries[name] <= self.retries:
                self.submit(job)
            else:
                tries = f"{death}; it died {self._tries[name]} times"
                results.append((job, failure(tries, time.monotonic() - process.begun)))
        return results

    def close(self) -> None:
        """End the processes; runs under way are saved first."""
        for process in self._busy.values():
            process.ask_to_stop()
        for process in [*self._busy.values(), *self._idle]:
            process.end(_PATIENCE if process in self._busy.values() else 0.0)
        self._busy, self._idle = {}, []


class _Process:
    """A worker process with its pipes."""

    def __init__(self) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed in end)
        # A session of its own: Ctrl-C reaches the driver alone, which then asks for a good end.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "uncollapse.sweep.engines"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=os.environ | ONE_THREAD,
            start_new_session=True,
        )
        self._jobs = cast(IO[bytes], self._process.stdin)
        self.answers = cast(IO[bytes], self._process.stdout)
        self.job: Job
        self.begun = 0.0

    def send(self, job: Job, path: Path) -> None:
        """Send it a run to make."""
        self.job, self.begun = job, time.monotonic()
        order = {"config": job.config.to_values(), "path": str(path.absolute())}
        self._jobs.write(json.dumps(order).encode() + b"\n")
        self._jobs.flush()

    def ask_to_stop(self) -> None:
        """As Ctrl-C would: the run finishes its step and saves."""
        if self._process.poll() is None:
            self._process.terminate()

    def end(self, patience: float = 0.0) -> str:
        """Wait for its answer up to `patience`, then end it; returns how it died, if by itself."""
        if patience:
            wait([self.answers.fileno()], patience)
        with contextlib.suppress(OSError):  # it is gone, with an order unread
            self._jobs.close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
        code = self._process.wait()
        self.answers.close()
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        self._log.close()
        why = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return f"its process was {why}" + (f" ({lines[-1].strip()})" if lines and code > 0 else "")


_STORE = 100_000_000  # bytes; what passes between processes is a config and a result


class RayEngine:
    """Each run is a task of one CPU and one BLAS thread; if its worker dies, it is restarted.

    It resumes from the run's last checkpoint, so every node must see the folder `out` under the
    same path. Without `address` a local cluster with this machine's cores is started, and stopped
    with the engine; usage statistics and the dashboard are off.
    """

    def __init__(self, out: Path, slots: int | None = None, address: str | None = None) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        self._ray = import_extra("ray", "ray")
        self.out = out.absolute()
        local = {"include_dashboard": False, "num_cpus": slots, "object_store_memory": _STORE}
        self._ray.init(
            address=address or "local",  # not a cluster that happens to run here
            namespace="uncollapse",
            log_to_driver=False,
            logging_level="error",
            **({} if address else local),
        )
        self.slots = slots or max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        self._task = self._ray.remote(num_cpus=1, max_retries=_RETRIES)(perform)
        self._running: dict[Any, tuple[Job, float]] = {}

    def submit(self, job: Job) -> None:
        """Hand a run to the cluster."""
        task = self._task.remote(job.config.to_values(), str(self.out / job.name))
        self._running[task] = job, time.monotonic()

    def collect(self, timeout: float) -> list[tuple[Job, Mapping[str, Any]]]:
        """Results that arrive within the timeout."""
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=timeout)
        results: list[tuple[Job, Mapping[str, Any]]] = []
        for task in ready:
            job, begun = self._running.pop(task)
            try:
                results.append((job, self._ray.get(task)))
            except self._ray.exceptions.RayError as error:
                line = " ".join(str(error).split())
                text = f"Ray gave up on it after {_RETRIES + 1} tries: {line[:300]}"
                results.append((job, failure(text, time.monotonic() - begun)))
        return results

    def close(self) -> None:
        """Cancel the running tasks (they can resume later) and leave the cluster."""
        for task in self._running:
            self._ray.cancel(task, force=True)
        self._running = {}
        self._ray.shutdown()


def serve() -> None:
    """Make one run after another: jobs come in on stdin, results go out on stdout.

    It ends when stdin does, so it never outlives the driver, however the driver died.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever prints does not disturb the answers
    jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(jobs,), daemon=True).start()
    while True:
        job = jobs.get()
        answers.write(json.dumps(perform(job["config"], job["path"])) + "\n")
        answers.flush()


def _listen(jobs: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in sys.stdin:
        jobs.put(json.loads(line))
    os._exit(0)  # the driver is gone: the run goes on from its checkpoint another time


if __name__ == "__main__":
    serve()
