"""A whole sweep in one folder: plan, runs, table; begun again it goes on where it was."""

from __future__ import annotations

import contextlib
import itertools
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from uncollapse._base.check import InputError
from uncollapse._base.extras import import_extra
from uncollapse._base.files import DamagedFileError, write_text
from uncollapse._base.progress import quiet_console
from uncollapse.sweep.jobs import Board, Engine, Job, Outcome, drive, past_outcome
from uncollapse.sweep.results import Results, primary_recall, result_row
from uncollapse.sweep.spec import Space, Sweep, load_sweep
from uncollapse.training import Config, Run, embed, evaluate, train
from uncollapse.training.assemble import load_eval_data

__all__ = ["Plan", "keep_sweep", "make_plan", "runs_folder", "sweep_grid", "sweep_search"]

_CONSTRAINT = "collapsed"  # above 0 it is broken
_STEPS = 5  # of a run that is timed
_KEPT = 3  # checkpoints of a run: the last two and the best


def runs_folder(out: str | Path) -> Path:
    """Where the runs of a sweep are."""
    return Path(out) / "runs"


def keep_sweep(sweep: Sweep, out: str | Path) -> None:
    """Write the resolved sweep into its folder, after `check_kept`."""
    check_kept(sweep, out)
    write_text(Path(out) / "sweep.toml", sweep.to_toml())


def check_kept(sweep: Sweep, out: str | Path) -> None:
    """Raise unless a sweep that has runs in this folder is a part of this one.

    Values, seeds and exclusions may be changed so that there are more runs; a run that was there
    must still be, unchanged.
    """
    file = Path(out) / "sweep.toml"
    if not file.is_file() or not any(runs_folder(out).glob("*/config.toml")):
        return
    before = load_sweep(file)
    allowed = "the sweep that is there, or more of it; give another --out for a different one"
    if (before.search is None) != (sweep.search is None) or before.axes != sweep.axes:
        given = f"axes {', '.join(sweep.axes)} where {out} has {', '.join(before.axes)}"
        raise InputError("sweep", given, allowed)
    if before.search is not None:
        if before.base != sweep.base or before.seeds != sweep.seeds:
            raise InputError("base", f"another one than in {out}", allowed)
        return
    jobs = {job.name: job.config for job in sweep.jobs()}
    for job in before.jobs():
        config = jobs.get(job.name)
        if config is None:
            raise InputError("grid", f"no run {job.name}, which {out} has", allowed)
        old, new = job.config.model_dump(), config.model_dump()
        changed = [section for section in old if old[section] != new[section]]
        if changed:
            given = f"another [{changed[0]}] for {job.name} than in {out}"
            raise InputError("base", given, allowed)


def sweep_grid(
    sweep: Sweep, out: str | Path, engine: Engine, board: Board, *, retry_failed: bool = False
) -> Results:
    """Make the runs of a grid that are not made yet, within the budget; the table follows."""
    jobs = sweep.jobs()
    done_first = sorted(jobs, key=lambda job: past_outcome(job, engine.out) is None)
    results = Results(Path(out), [job.name for job in jobs])

    def add(job: Job, outcome: Outcome) -> None:
        results.add(result_row(sweep, job, outcome))

    return _drive(sweep, done_first, engine, board, results, add, retry_failed)


def _drive(
    sweep: Sweep,
    jobs: Iterable[Job],
    engine: Engine,
    board: Board,
    results: Results,
    add: Callable[[Job, Outcome], None],
    retry_failed: bool,
) -> Results:
    """Make the jobs within the budget, and add each that has ended to the results."""
    limits = {"most": sweep.budget.max_runs, "deadline": sweep.deadline()}
    drive(jobs, engine, board, retry_failed=retry_failed, on_outcome=add, **limits)  # type: ignore[arg-type]
    results.write()
    return results


def sweep_search(
    sweep: Sweep, out: str | Path, engine: Engine, board: Board, *, retry_failed: bool = False
) -> Results:
    """Make trials until there are as many as asked for; the table follows.

    The study is kept in `study.journal`. A trial's value is R@1 on the first evaluation split; a
    run that collapsed (`is_collapsed`) breaks a constraint, so that the sampler keeps away from
    where it was. A run that failed is a failed trial. When the driver was killed, the trials that
    were under way go on from their checkpoints.
    """
    optuna = import_extra("optuna", "optuna")
    study = _study(optuna, sweep, Path(out))
    trials: dict[str, Any] = {}
    results = Results(Path(out))

    def proposals() -> Iterator[Job]:
        for trial in _trials(optuna, study, sweep):
            config = sweep.config({**trial.params, "seed": sweep.seeds[0]})
            job = Job(f"trial-{trial.number:04d}", config)
            trials[job.name] = trial
            yield job

    def add(job: Job, outcome: Outcome) -> None:
        row = result_row(sweep, job, outcome)
        results.add(row)
        _tell(optuna, study, trials[job.name], row)

    return _drive(sweep, proposals(), engine, board, results, add, retry_failed)


def _study(optuna: Any, sweep: Sweep, out: Path) -> Any:
    journal = import_extra("optuna.storages.journal", "optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    out.mkdir(parents=True, exist_ok=True)
    backend = journal.JournalFileBackend(str(out / "study.journal"))
    study = optuna.create_study(
        storage=journal.JournalStorage(backend),
        study_name="sweep",
        direction="maximize",
        load_if_exists=True,
    )
    # A sampler that begins again must not propose again what it proposed before.
    seed = sweep.seeds[0] + 1_000_003 * len(study.trials)
    study.sampler = optuna.samplers.TPESampler(seed=seed % 2**32)
    return study


def _trials(optuna: Any, study: Any, sweep: Sweep) -> Iterator[Any]:
    """Every trial the study has, then new ones, up to the number asked for."""
    search = sweep.search
    if search is None:
        return
    spaces = {key: _distribution(optuna, space) for key, space in search.spaces.items()}
    known = study.get_trials(deepcopy=False)
    for frozen in known:
        if len(frozen.params) == len(spaces):  # a driver may be killed while it asks
            yield optuna.trial.Trial(study, frozen._trial_id)
        elif not frozen.state.is_finished():
            study.tell(frozen.number, state=optuna.trial.TrialState.FAIL)
    for _ in range(search.trials - len(known)):
        yield study.ask(spaces)


def _tell(optuna: Any, study: Any, trial: Any, row: Mapping[str, Any]) -> None:
    frozen = study.get_trials(deepcopy=False)[trial.number]
    if frozen.state.is_finished():
        return
    recall = primary_recall(row)
    if recall is None:
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return
    if _CONSTRAINT not in frozen.constraints:  # a driver may be killed before the next line
        trial.set_constraint(_CONSTRAINT, float(row["collapsed"]))
    study.tell(trial, recall)


def _distribution(optuna: Any, space: Space) -> Any:
    kinds = optuna.distributions
    if space.choices:
        return kinds.CategoricalDistribution(space.choices)
    kind = kinds.IntDistribution if space.whole else kinds.FloatDistribution
    return kind(*space.ends, log=space.log)


# What a sweep will cost, shown before it begins: a short calibration, extrapolated.


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
    left = left[: sweep.budget.max_runs]
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
        done = 0
        for path in out.glob("trial-*"):
            with contextlib.suppress(DamagedFileError):  # it is made again
                done += Run(path).summary.get("status") in ("finished", "stopped")
        corners = [sweep.config(point) for point in sweep.search.corners()]
        return done, 0, list(itertools.islice(itertools.cycle(corners), sweep.search.trials - done))
    done, failed, left = 0, 0, []
    for job in sweep.jobs():
        past = past_outcome(job, out)
        if past is None or (past.status == "failed" and retry_failed):
            left.append(job.config)
        elif past.status == "failed":
            failed += 1
        else:
            done += 1
    return done, failed, left


def _train(config: Config, steps: int, out: Path) -> float:
    short = {"steps": steps, "threads": 1}
    changes = {
        "train": config.train.model_copy(update=short),
        "data": config.data.model_copy(update={"eval_splits": []}),  # timed once, by itself
    }
    changed = config.model_copy(update=changes)
    begun = time.perf_counter()
    train(changed, out, console=quiet_console())
    return time.perf_counter() - begun


def _judge(config: Config, path: Path) -> tuple[float, int]:
    model = Run.open(path, trust=True).load_model()
    begun = time.perf_counter()
    for split in config.data.eval_splits:
        data = load_eval_data(config, split)
        evaluate(embed(model, data, batch=config.evaluate.batch), data, config.evaluate)
    spent = time.perf_counter() - begun
    newest = sorted((path / "checkpoints").glob("step-*"))[-1]
    return spent, sum(file.stat().st_size for file in newest.iterdir())


def _work(config: Config) -> float:
    """How large a config is, in arbitrary units: its batch, and its dimension beside a network."""
    return config.batch.samples * (512.0 + config.model.dim)


def _between(low: Cost, high: Cost, config: Config) -> float:
    share = (_work(config) - low.work) / ((high.work - low.work) or 1.0)
    return (1.0 - share) * low.seconds(config) + share * high.seconds(config)
