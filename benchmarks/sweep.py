"""A sweep of 16 runs in two processes against the same runs one after another in one process.

Wall-clock time, since that is what processes are for: run it on two cores that are otherwise idle.
Bar: at most 0.6 of the time. The overhead is what a run of one step costs on the engine beyond what
it costs alone: sending it, taking its lock, looking for its result, writing its row.

    python benchmarks/sweep.py [--rounds 3]
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from uncollapse.sweep import Job, run_jobs
from uncollapse.sweep.perform import perform
from uncollapse.training import Config, parse_config

BAR = 0.6
RUNS = 16
BASE = {
    "data": {"name": "digits"},
    "model": {"backbone": "conv2", "dim": 64},
    "batch": {"p": 8, "k": 4},
    "mining": {"positives": "hard", "negatives": "hard"},
    "train": {"steps": 600, "evaluate_every": 600, "checkpoint_every": 600, "tensorboard": "off"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    os.environ["OMP_NUM_THREADS"] = "1"
    jobs = [Job(f"run-{seed}", config(seed)) for seed in range(RUNS)]
    ratios = []
    for number in range(rounds):
        alone, processes = serial(jobs), engine(jobs)
        ratios.append(processes / alone)
        print(
            f"round {number + 1}: {RUNS} runs one after another {alone:6.1f} s, in two processes "
            f"{processes:6.1f} s: {ratios[-1]:.2f}, load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    ratio = statistics.median(ratios)
    verdict = "pass" if ratio <= BAR else "MISS"
    print(f"median {ratio:.2f} of the time (bar {BAR}): {verdict}")
    short = [Job(f"short-{seed}", config(seed, steps=1)) for seed in range(RUNS)]
    alone, processes = serial(short), engine(short, count=1)
    begin = engine(short[:1], count=1) - serial(short[:1])
    each = (processes - alone - begin) / (RUNS - 1)
    print(f"overhead: {begin:.1f} s to start a process, {1000 * each:.0f} ms a run")
    sys.exit(verdict == "MISS")


def config(seed: int, steps: int | None = None) -> Config:
    train = BASE["train"] if steps is None else {**BASE["train"], "steps": steps}
    return parse_config({**BASE, "seed": seed, "train": train})


def serial(jobs: list[Job]) -> float:
    """Wall seconds of the runs in this process, which has everything imported already."""
    with tempfile.TemporaryDirectory() as folder:
        perform(jobs[0].config.model_dump(), str(Path(folder, "warm")))
        shutil.rmtree(Path(folder, "warm"))
        begun = time.perf_counter()
        for job in jobs:
            result = perform(job.config.model_dump(), str(Path(folder, job.name)))
            if result["status"] != "finished":
                raise RuntimeError(result["error"])
        return time.perf_counter() - begun


def engine(jobs: list[Job], count: int = 2) -> float:
    """Wall seconds of the runs on the local engine, the start of its processes included."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        outcomes = run_jobs(jobs, folder, processes=count, console=Console(file=io.StringIO()))
        spent = time.perf_counter() - begun
    if {outcome.status for outcome in outcomes} != {"finished"}:
        raise RuntimeError(str(outcomes))
    return spent


if __name__ == "__main__":
    main()
