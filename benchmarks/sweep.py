"""A sweep of 16 runs in two processes against the same runs one after another in one process.

Bar: at most 0.6 of the wall-clock time, the start of the processes included, on two cores that are
otherwise idle. On a busy machine (load above 2.5) wall-clock time says nothing; what is judged then
is the CPU time of one of the two processes, which is what two idle cores would take. The overhead
is what a run of one step costs on the engine beyond what it costs alone.

    python benchmarks/sweep.py [--rounds 3]
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before any BLAS loads
os.environ["MKL_NUM_THREADS"] = os.environ["NUMBA_NUM_THREADS"] = "1"

import argparse
import io
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from uncollapse.sweep import Job, run_jobs
from uncollapse.sweep.jobs import perform
from uncollapse.training import Config, parse_config

BAR = 0.6
RUNS = 16
IDLE = 2.5  # load above which others are at work
BASE = {
    "data": {"name": "digits"},
    "model": {"backbone": "conv2", "dim": 64},
    "batch": {"p": 8, "k": 4},
    "mining": {"positives": "hard", "negatives": "hard"},
    "train": {
        "steps": 1500,
        "evaluate_every": 1000,
        "checkpoint_every": 1000,
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    jobs = [Job(f"run-{seed}", config(seed)) for seed in range(RUNS)]
    walls, busy, load = [], [], os.getloadavg()[0]
    for number in range(rounds):
        alone, both = serial(jobs), engine(jobs)
        walls.append(both.wall / alone.wall)
        busy.append(both.cpu / 2 / alone.cpu)
        print(
            f"round {number + 1}: one after another {alone.wall:.1f} s ({alone.cpu:.1f} s CPU), in "
            f"two processes {both.wall:.1f} s ({both.cpu / 2:.1f} s CPU each): "
            f"{walls[-1]:.2f} of the wall-clock time, {busy[-1]:.2f} of the CPU time",
            flush=True,
        )
    idle = load < IDLE
    ratio = statistics.median(walls if idle else busy)
    verdict = "pass" if ratio <= BAR else "MISS"
    kind = "wall-clock" if idle else f"CPU (load {load:.1f}: wall-clock time says nothing)"
    print(f"{RUNS} runs, median {ratio:.2f} of the {kind} time, bar {BAR}: {verdict}")
    short = [Job(f"short-{seed}", config(seed, steps=1)) for seed in range(RUNS)]
    alone, both = serial(short), engine(short, count=1)
    begin = engine(short[:1], count=1).cpu - serial(short[:1]).cpu
    each = (both.cpu - alone.cpu - begin) / (RUNS - 1)
    print(f"overhead: {begin:.1f} s CPU to start a process, {1000 * each:.0f} ms CPU a run")
    sys.exit(verdict == "MISS")


@dataclass(frozen=True)
class Spent:
    """Seconds of a clock, and of the processor in all processes that ran."""

    wall: float
    cpu: float


def config(seed: int, steps: int | None = None) -> Config:
    train = BASE["train"] if steps is None else {**BASE["train"], "steps": steps}
    return parse_config({**BASE, "seed": seed, "train": train})


def serial(jobs: list[Job]) -> Spent:
    """The runs in this process, which has everything imported already."""
    with tempfile.TemporaryDirectory() as folder:
        perform(config(0, steps=1).model_dump(), str(Path(folder, "warm")))
        begun, cpu = time.perf_counter(), time.process_time()
        for job in jobs:
            result = perform(job.config.model_dump(), str(Path(folder, job.name)))
            if result["status"] != "finished":
                raise RuntimeError(result["error"])
        return Spent(time.perf_counter() - begun, time.process_time() - cpu)


def engine(jobs: list[Job], count: int = 2) -> Spent:
    """The runs on the local engine, the start of its processes included."""
    with tempfile.TemporaryDirectory() as folder:
        begun, cpu = time.perf_counter(), _children()
        outcomes = run_jobs(jobs, folder, processes=count, console=Console(file=io.StringIO()))
        spent = Spent(time.perf_counter() - begun, _children() - cpu)
    if {outcome.status for outcome in outcomes} != {"finished"}:
        raise RuntimeError(str(outcomes))
    return spent


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
