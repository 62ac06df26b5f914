"""A tiny run, an engine without processes, and ways to watch those that have them."""

import threading

from uncollapse.sweep.jobs import Job, perform
from uncollapse.training import parse_config

TINY = {
    "data": {"name": "digits"},
    "model": {"backbone": "mlp", "dim": 4, "hidden": [16]},
    "batch": {"p": 5, "k": 4},
    "mining": {"positives": "random", "negatives": "random"},
    "evaluate": {"max_samples": 100, "ks": [1]},
    "train": {"steps": 4, "log_every": 2, "evaluate_every": 4, "checkpoint_every": 2},
}
# Saved every 5 steps; each process stands at its 12th until it is killed or let go.
LONG = {
    **TINY,
    "model": {"backbone": "support.gated_network:Network", "dim": 4},
    "train": {**TINY["train"], "steps": 30, "checkpoint_every": 5},
}
LONG_JOBS = [Job(f"run-{seed}", parse_config({**LONG, "seed": seed})) for seed in range(3)]


class InlineEngine:
    """Makes runs in this process, when they are collected; `after` many it is interrupted."""

    slots = 1

    def __init__(self, out, after=None):
        self.out, self.after, self.made = out, after, []
        self._waiting = []

    def submit(self, job):
        if self.after is not None and len(self.made) >= self.after:
            raise KeyboardInterrupt
        self._waiting.append(job)

    def collect(self, timeout):
        job = self._waiting.pop()
        self.made.append(job.name)
        return [(job, perform(job.config.model_dump(), str(self.out / job.name)))]

    def close(self):
        self._waiting = []


def log(path):
    """What a run leaves that must not depend on how often it was interrupted."""
    return (path / "metrics.jsonl").read_bytes()


def until(condition, seconds=120.0):
    """Wait for something another process does; None if it never does."""
    pause, waited = threading.Event(), 0.0
    while waited < seconds:
        found = condition()
        if found:
            return found
        pause.wait(0.005)
        waited += 0.005
    return None


def writer(path):
    """The process that is making a run and has saved it once already."""
    if not list(path.glob("checkpoints/step-*/state.pt")):
        return None
    try:
        return int((path / ".lock").read_text().split()[1].removeprefix("pid="))
    except (OSError, IndexError):
        return None
