import pytest

from support.sweep_helpers import TINY, InlineEngine, log
from uncollapse.sweep import parse_sweep
from uncollapse.sweep.grid import run_sweep

pytestmark = pytest.mark.slow

optuna = pytest.importorskip("optuna")


def search(trials, **changes):
    spaces = {
        "optimizer.lr": {"low": 1e-4, "high": 1e-1, "log": True},
        "batch.k": {"low": 2, "high": 4},
        "mining.positives": ["easy", "hard"],
    }
    return parse_sweep({"base": TINY, "search": {"trials": trials, **spaces}, **changes})


def study(out):
    backend = optuna.storages.journal.JournalFileBackend(str(out / "study.journal"))
    storage = optuna.storages.JournalStorage(backend)
    return optuna.load_study(study_name="sweep", storage=storage)


def test_a_search_that_was_killed_goes_on_and_makes_every_trial_once(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_sweep(search(4), tmp_path, InlineEngine(tmp_path / "runs", after=2))
    begun = study(tmp_path).trials
    assert [trial.state.name for trial in begun] == ["COMPLETE", "COMPLETE", "RUNNING"]
    before = log(tmp_path / "runs" / "trial-0000")

    engine = InlineEngine(tmp_path / "runs")
    results = run_sweep(search(4), tmp_path, engine)
    assert engine.made == ["trial-0002", "trial-0003"]
    ended = study(tmp_path).trials
    assert [trial.state.name for trial in ended] == ["COMPLETE"] * 4
    assert ended[2].params == begun[2].params
    assert ended[0].constraints == {"collapsed": 0.0}
    assert len({tuple(trial.params.values()) for trial in ended}) == 4
    assert log(tmp_path / "runs" / "trial-0000") == before
    assert [row["run"] for row in results.rows] == [f"trial-{i:04d}" for i in range(4)]
    values = [row["test/recall@1"] for row in results.rows]
    assert [trial.value for trial in ended] == values
    assert results.rows[0]["optimizer.lr"] == ended[0].params["optimizer.lr"]

    more = InlineEngine(tmp_path / "runs")
    run_sweep(search(5), tmp_path, more)
    assert more.made == ["trial-0004"]


def test_a_collapsed_trial_breaks_the_constraint_and_a_failed_one_has_no_value(tmp_path):
    base = {
        **TINY,
        "guard": {"action": "off"},
        "optimizer": {"name": "sgd", "momentum": 0.0, "lr": 1e-2},
        "train": {**TINY["train"], "steps": 30, "evaluate_every": 30},
    }
    asked = parse_sweep(
        {"base": base, "search": {"trials": 6, "optimizer.weight_decay": [0.0, 20.0, 1e30]}}
    )
    rows = run_sweep(asked, tmp_path, InlineEngine(tmp_path / "runs")).rows
    trials = study(tmp_path).trials
    assert {trial.params["optimizer.weight_decay"] for trial in trials} >= {20.0, 1e30}
    for trial, row in zip(trials, rows, strict=True):
        decay = trial.params["optimizer.weight_decay"]
        assert trial.state.name == ("FAIL" if decay == 1e30 else "COMPLETE")
        if decay < 1e30:
            assert trial.constraints == {"collapsed": float(decay == 20.0)}
            assert row["collapsed"] == (decay == 20.0)
