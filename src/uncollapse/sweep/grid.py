"""A whole sweep in one folder: plan, runs, table. Started again, it resumes."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from uncollapse._base.check import InputError
from uncollapse._base.extras import import_extra
from uncollapse._base.files import DamagedFileError, write_text
from uncollapse._base.progress import quiet_console
from uncollapse.sweep.jobs import Engine, Job, Outcome, drive, past_outcome
from uncollapse.sweep.results import Results, primary_recall, result_row
from uncollapse.sweep.spec import Search, Space, Sweep, load_sweep
from uncollapse.training import Config, Run, embed, evaluate, train
from uncollapse.training.assemble import load_eval_data

if TYPE_CHECKING:
    from uncollapse._base.progress import Console

_CONSTRAINT = "collapsed"  # above 0 it is broken
_STEPS = 5  # of a run that is timed
_KEPT = 3  # checkpoints of a run: the last two and the best


def keep_sweep(sweep: Sweep, out: str | Path) -> None:
    """Write the resolved sweep into its folder, after `check_kept`."""
    check_kept(sweep, out)
    write_text(Path(out) / "sweep.toml", sweep.to_toml())


def check_kept(sweep: Sweep, out: str | Path) -> None:
    """Raise unless this sweep contains the one that has runs in this folder.

    Values and seeds may be added; existing runs must be part of it, unchanged.
    """
    file = Path(out) / "sweep.toml"
    if not file.is_file() or not any(Path(out).glob("runs/*/config.toml")):
        return
    before = load_sweep(file)
    jobs = {job.name: job.config for job in sweep.jobs()}
    changed = [job.name for job in before.jobs() if jobs.get(job.name) != job.config]
    if before.search is not None or sweep.search is not None:
        same = (before.axes, before.base, before.seeds) == (sweep.axes, sweep.base, sweep.seeds)
        changed += [] if same else ["its search"]
    if changed:
        allowed = "the sweep that is there, or more of it; give another --out for a different one"
        raise InputError("sweep", f"one that lacks or changes {changed[0]} of {out}", allowed)


def run_sweep(
    sweep: Sweep,
    out: str | Path,
    engine: Engine,
    *,
    retry_failed: bool = False,
    console: Console | None = None,
) -> Results:
    """Make the missing runs of a grid, or trials of a search, and write the table of results.

    A search is kept in `study.journal`. A trial's value is R@1 on the first evaluation split; a run
    that collapsed (`is_collapsed`) breaks a constraint, so that the sampler avoids that region. A
    run that failed is a failed trial. If the driver was killed, the trials that were running resume
    from their checkpoints.
    """
    study = None if sweep.search is None else _Study(sweep, sweep.search, Path(out))
    planned = sweep.jobs()
    names = [job.name for job in planned] if study is None else study.names
    results = Results(Path(out), names)

    def add(job: Job, outcome: Outcome) -> None:
        row = result_row(sweep, job, outcome)
        results.add(row)
        if study is not None:
            study.tell(job, row)

    done_first = sorted(planned, key=lambda job: past_outcome(job, engine.out) is None)
    hours = sweep.budget.max_hours
    drive(
        done_first if study is None else study.jobs(),
        engine,
        total=len(names),
        retry_failed=retry_failed,
        most=sweep.budget.max_runs,
        deadline=None if hours is None else time.monotonic() + 3600.0 * hours,
        on_outcome=add,
        console=console,
    )
    results.write()
    return results


class _Study:
    """Optuna's study of a search, kept in a file, and the running trials."""

    def __init__(self, sweep: Sweep, search: Search, out: Path) -> None:
        self.optuna, self.sweep, self.search = import_extra("optuna", "optuna"), sweep, search
        journal = import_extra("optuna.storages.journal", "optuna")
        self.optuna.logging.set_verbosity(self.optuna.logging.WARNING)
        out.mkdir(parents=True, exist_ok=True)
        backend = journal.JournalFileBackend(str(out / "study.journal"))
        self.study = self.optuna.create_study(
            storage=journal.JournalStorage(backend),
            study_name="sweep",
            direction="maximize",
            load_if_exists=True,
        )
        self.known = self.study.get_trials(deepcopy=False)
        # A sampler that begins again must not propose again what it proposed before.
        seed = sweep.seeds[0] + 1_000_003 * len(self.known)
        self.study.sampler = self.optuna.samplers.TPESampler(seed=seed % 2**32)
        self.trials: dict[str, Any] = {}

    @property
    def names(self) -> list[str]:
        """The names of all trials."""
        count = max(len(self.known), self.search.trials)
        return [f"trial-{number:04d}" for number in range(count)]

    def jobs(self) -> Iterator[Job]:
        """Every trial the study has, then new ones, up to the number asked for."""
        for trial in self._trials():
            config = self.sweep.config({**trial.params, "seed": self.sweep.seeds[0]})
            job = Job(self.names[trial.number], config)
            self.trials[job.name] = trial
            yield job

    def _trials(self) -> Iterator[Any]:
        spaces = {key: self._distribution(space) for key, space in self.search.spaces.items()}
        for frozen in self.known:
            if len(frozen.params) == len(spaces):  # a driver may be killed while it asks
                yield self.optuna.trial.Trial(self.study, frozen._trial_id)
            elif not frozen.state.is_finished():
                self.study.tell(frozen.number, state=self.optuna.trial.TrialState.FAIL)
        for _ in range(self.search.trials - len(self.known)):
            yield self.study.ask(spaces)

    def _distribution(self, space: Space) -> Any:
        kinds = self.optuna.distributions
        if space.choices:
            return kinds.CategoricalDistribution(space.choices)
        kind = kinds.IntDistribution if space.whole else kinds.FloatDistribution
        return kind(*space.ends, log=space.log)

    def tell(self, job: Job, row: Mapping[str, Any]) -> None:
        """Record the outcome of a trial, once."""
        trial = self.trials[job.name]
        frozen = self.study.get_trials(deepcopy=False)[trial.number]
        if frozen.state.is_finished():
            return
        recall = primary_recall(row)
        if recall is None:
            self.study.tell(trial, state=self.optuna.trial.TrialState.FAIL)
            return
        if _CONSTRAINT not in frozen.constraints:  # a driver may be killed before the next line
            trial.set_constraint(_CONSTRAINT, float(row["collapsed"]))
        self.study.tell(trial, recall)


# What a sweep will cost, shown before it begins.


@dataclass(frozen=True)
class Plan:
    """The number of runs of a sweep, those done, and an upper estimate for the others."""

    total: int
    done: int
    failed: int
    left: int
    slots: int
    seconds: float | None = None
    disk: int | None = None
    why: str = ""


def make_plan(sweep: Sweep, out: Path, slots: int, *, retry_failed: bool = False) -> Plan:
    """Count what is left within the budget, and estimate it by a few steps of the largest run.

    `out` holds the runs. The largest run has the largest batch and dimension; the others are
    assumed to cost as much.
    """
    done, failed, left = _left(sweep, out, retry_failed)
    total = sweep.search.trials if sweep.search else done + failed + len(left)
    left = left[: sweep.budget.max_runs]
    counts = (total, done, failed, len(left), min(slots, max(1, len(left))))
    if not left:
        return Plan(*counts)
    try:
        largest = max(left, key=lambda c: c.batch.samples * (512 + c.model.dim) * c.train.steps)
        seconds, checkpoint = _cost(largest)
    except InputError as error:
        return Plan(*counts, why=str(error))
    return Plan(*counts, seconds * len(left) / counts[-1], len(left) * _KEPT * checkpoint)


def _left(sweep: Sweep, out: Path, retry_failed: bool) -> tuple[int, int, list[Config]]:
    """How many runs are done and failed, and the configs of those to be made."""
    if sweep.search is not None:
        done = 0
        for path in out.glob("trial-*"):
            with contextlib.suppress(DamagedFileError):  # it is made again
                done += Run(path).summary.get("status") in ("finished", "stopped")
        corners = [sweep.config(point) for point in sweep.search.corners()]
        return done, 0, list(itertools.islice(itertools.cycle(corners), sweep.search.trials - done))
    jobs = sweep.jobs()
    past = [past_outcome(job, out) for job in jobs]
    failed = 0 if retry_failed else sum(o is not None and o.status == "failed" for o in past)
    left = [
        job.config
        for job, outcome in zip(jobs, past, strict=True)
        if outcome is None or (retry_failed and outcome.status == "failed")
    ]
    return len(jobs) - failed - len(left), failed, left


def _cost(config: Config) -> tuple[float, int]:
    """Seconds of a whole run and bytes of a checkpoint, by a few steps and one evaluation."""
    threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices=[]):
        try:
            _time(config, 1, Path(folder, "warm"))  # imports, caches
            first = _time(config, 1, Path(folder, "first"))
            more = _time(config, 1 + _STEPS, Path(folder, "more"))
            model = Run.open(Path(folder, "more"), trust=True).load_model()
            begun = time.perf_counter()
            for split in config.data.eval_splits:
                data = load_eval_data(config, split)
                evaluate(embed(model, data, batch=config.evaluate.batch), data, config.evaluate)
            judge = time.perf_counter() - begun
            newest = sorted(Path(folder, "more", "checkpoints").glob("step-*"))[-1]
            checkpoint = sum(file.stat().st_size for file in newest.iterdir())
        finally:
            torch.set_num_threads(threads)
    step, c = max(0.0, more - first) / _STEPS, config.train
    return first + c.steps * step + (2 + c.steps // c.evaluate_every) * judge, checkpoint


def _time(config: Config, steps: int, out: Path) -> float:
    changes = {
        "train": config.train.model_copy(update={"steps": steps, "threads": 1}),
        "data": config.data.model_copy(update={"eval_splits": []}),  # timed once, by itself
    }
    begun = time.perf_counter()
    train(config.model_copy(update=changes), out, console=quiet_console())
    return time.perf_counter() - begun
