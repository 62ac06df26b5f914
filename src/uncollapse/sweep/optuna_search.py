"""A search instead of a grid: Optuna proposes, R@1 is what counts, collapse is not allowed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from uncollapse._base.extras import import_extra
from uncollapse.sweep.board import Board
from uncollapse.sweep.driver import Engine, drive
from uncollapse.sweep.job import Job, Outcome
from uncollapse.sweep.results import Results, primary_recall, result_row
from uncollapse.sweep.space import Space
from uncollapse.sweep.spec import Sweep

__all__ = ["sweep_search"]

_CONSTRAINT = "collapsed"  # above 0 it is broken


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
    open_trials: dict[str, Any] = {}
    jobs: dict[str, Job] = {}
    results = Results(Path(out))

    def proposals() -> Iterator[Job]:
        for trial in _trials(optuna, study, sweep):
            config = sweep.config({**trial.params, "seed": sweep.seeds[0]})
            job = Job(f"trial-{trial.number:04d}", config)
            open_trials[job.name], jobs[job.name] = trial, job
            yield job

    def tell(outcome: Outcome) -> None:
        if outcome.status == "interrupted":
            return
        row = result_row(sweep, jobs[outcome.name], outcome)
        results.add(row)
        _tell(optuna, study, open_trials[outcome.name], row)

    drive(
        proposals(),
        engine,
        board,
        retry_failed=retry_failed,
        most=sweep.max_runs,
        deadline=sweep.deadline(),
        on_outcome=tell,
    )
    results.write()
    return results


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
