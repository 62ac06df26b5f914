"""What a sweep will cost, shown before it begins: a short calibration, extrapolated."""

from __future__ import annotations

import itertools
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from uncollapse._base.check import InputError
from uncollapse._base.files import DamagedFileError
from uncollapse._base.progress import quiet_console
from uncollapse.sweep.job import past_outcome
from uncollapse.sweep.spec import Sweep
from uncollapse.training import Config, Run, embed, evaluate, train
from uncollapse.training.assemble import load_eval_data

__all__ = ["Cost", "Plan", "calibrate", "make_plan"]

_STEPS = 5
_KEPT = 3  # checkpoints of a run: the last two and the best


@dataclass(frozen=True)
class Cost:
    """What one config costs: seconds to begin and end, for a step, for an evaluation; bytes."""

    work: float
    fixed: float
    step: float
    judge: float
    checkpoint: int

    def seconds(self, config: Config) -> float:
        """A whole run of such a config."""
        c = config.train
        return self.fixed + c.steps * self.step + (2 + c.steps // c.evaluate_every) * self.judge


@dataclass(frozen=True)
class Plan:
    """The runs of a sweep, how many are done, and what the others will take."""

    total: int
    done: int
    failed: int
    left: int
    slots: int
    seconds: float | None = None
    disk: int | None = None
    why: str = ""


def make_plan(sweep: Sweep, out: Path, slots: int, *, retry_failed: bool = False) -> Plan:
    """Count what is left within the budget, and estimate it by `calibrate`.

    The smallest and the largest config are tried for a few steps; what lies between is taken to
    cost in proportion to its batch and dimension. `out` holds the runs.
    """
    done, failed, left = _left(sweep, out, retry_failed)
    total = sweep.search.trials if sweep.search else done + failed + len(left)
    left = left[: sweep.max_runs]
    counts = (total, done, failed, len(left), min(slots, max(1, len(left))))
    if not left:
        return Plan(*counts)
    try:
        low, high = calibrate(min(left, key=_work)), calibrate(max(left, key=_work))
    except InputError as error:
        return Plan(*counts, why=str(error))
    seconds = sum(_between(low, high, config) for config in left) / counts[-1]
    return Plan(*counts, seconds, len(left) * _KEPT * max(low.checkpoint, high.checkpoint))


def calibrate(config: Config) -> Cost:
    """Train a few steps of a config in a scratch folder, evaluate once, and time the parts."""
    threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices=[]):
        try:
            _train(config, 1, Path(folder, "warm"))  # imports, caches
            first = _train(config, 1, Path(folder, "first"))
            more = _train(config, 1 + _STEPS, Path(folder, "more"))
            judge, size = _judge(config, Path(folder, "more"))
        finally:
            torch.set_num_threads(threads)
    step = max(0.0, more - first) / _STEPS
    return Cost(_work(config), max(0.0, first - step), step, judge, size)


def _left(sweep: Sweep, out: Path, retry_failed: bool) -> tuple[int, int, list[Config]]:
    """How many runs are done and failed, and the configs of those to be made."""
    if sweep.search is not None:
        done = sum(_ended(Run(path)) for path in out.glob("trial-*"))
        corners = [sweep.config(point) for point in sweep.search.corners()]
        return done, 0, list(itertools.islice(itertools.cycle(corners), sweep.search.trials - done))
    jobs = sweep.jobs()
    past = [past_outcome(job, out) for job in jobs]
    failed = [one is not None and one.status == "failed" for one in past]
    left = [
        job.config
        for job, one, bad in zip(jobs, past, failed, strict=True)
        if one is None or (bad and retry_failed)
    ]
    again = sum(failed) if retry_failed else 0
    return len(jobs) - len(left) - sum(failed) + again, sum(failed) - again, left


def _ended(run: Run) -> bool:
    try:
        return run.summary.get("status") in ("finished", "stopped")
    except DamagedFileError:  # it is made again
        return False


def _train(config: Config, steps: int, out: Path) -> float:
    short = {"steps": steps, "tensorboard": "off", "threads": 1}
    changes = {
        "train": config.train.model_copy(update=short),
        "data": config.data.model_copy(update={"eval_splits": []}),  # timed once, by itself
    }
    changed = config.model_copy(update=changes)
    begun = time.perf_counter()
    train(changed, out, console=quiet_console())
    return time.perf_counter() - begun


def _judge(config: Config, path: Path) -> tuple[float, int]:
    model = Run.open(path).load_model()
    begun = time.perf_counter()
    for split in config.data.eval_splits:
        data = load_eval_data(config, split)
        evaluate(embed(model, data, batch=config.evaluate.batch), data, config.evaluate)
    spent = time.perf_counter() - begun
    newest = sorted((path / "checkpoints").glob("step-*"))[-1]
    return spent, sum(file.stat().st_size for file in newest.iterdir())


def _work(config: Config) -> float:
    """How large a config is, in arbitrary units: its batch, and its dimension beside a network."""
    rows = config.batch.p * config.batch.k
    rows = config.batch.size if config.batch.sampler == "uniform" else rows
    return rows * (512.0 + config.model.dim)


def _between(low: Cost, high: Cost, config: Config) -> float:
    share = (_work(config) - low.work) / ((high.work - low.work) or 1.0)
    return (1.0 - share) * low.seconds(config) + share * high.seconds(config)
