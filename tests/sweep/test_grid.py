import csv
import json
import shutil

import pytest

from support.sweep_helpers import TINY, InlineEngine, log
from uncollapse.sweep import parse_sweep
from uncollapse.sweep.grid import make_plan, run_sweep
from uncollapse.sweep.jobs import past_outcome
from uncollapse.sweep.results import diameters

pytestmark = pytest.mark.slow


def sweep(**changes):
    return parse_sweep({"base": TINY, "grid": {"batch.p": [2, 3, 99]}, **changes})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A sweep of two runs that finished and one that failed: its results, engine and folder."""
    out = tmp_path_factory.mktemp("finished")
    engine = InlineEngine(out / "runs")
    return run_sweep(sweep(), out, engine), engine, out


@pytest.fixture
def made(finished, tmp_path):
    """A copy of it, to change."""
    results, _, out = finished
    shutil.copytree(out, tmp_path / "copy")
    return results, tmp_path / "copy"


def names_made(asked, out, **options):
    """The runs that a sweep makes in this folder."""
    engine = InlineEngine(out / "runs")
    run_sweep(asked, out, engine, **options)
    return engine.made


def test_a_failing_run_is_recorded_and_the_others_go_on(finished):
    results, engine, out = finished
    assert engine.made == ["p=2,seed=0", "p=3,seed=0", "p=99,seed=0"]
    assert [row["status"] for row in results.rows] == ["finished", "finished", "failed"]
    assert "batch.p: expected at most the 10 classes" in results.rows[2]["error"]
    failure = json.loads((out / "runs" / "p=99,seed=0" / "failure.json").read_text())
    assert "Traceback" in failure["traceback"]


def test_finished_and_failed_runs_are_not_repeated(made):
    results, out = made
    before = log(out / "runs" / "p=2,seed=0")
    engine = InlineEngine(out / "runs")
    again = run_sweep(sweep(), out, engine)
    assert engine.made == []
    assert log(out / "runs" / "p=2,seed=0") == before
    assert [row["status"] for row in again.rows] == [row["status"] for row in results.rows]
    assert names_made(sweep(), out, retry_failed=True) == ["p=99,seed=0"]


def test_the_table_has_one_row_per_run_with_what_was_measured(finished):
    results, _, out = finished
    with (out / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["run"] for row in rows] == [row["run"] for row in results.rows]
    first = rows[0]
    assert (first["batch.p"], first["seed"], first["collapsed"]) == ("2", "0", "False")
    assert 0 <= float(first["test/recall@1"]) <= 1
    run = past_outcome(sweep().jobs()[0], out / "runs").run
    sizes = diameters(run)
    assert float(first["bound"]) == sizes["diameter_init"] - 2 * sizes["hard_loss_init"]
    assert sizes["diameter"] != sizes["diameter_init"]
    assert float(first["recall_init"]) == next(run.metrics())["test/recall@1"]
    assert "fine_recall_init" not in first  # there are no fine labels
    assert float(first["diameter"]) == sizes["diameter"]


def test_an_interrupted_sweep_and_one_with_a_budget_leave_runs_for_the_next_time(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_sweep(sweep(), tmp_path, InlineEngine(tmp_path / "runs", after=1))
    assert names_made(sweep(budget={"max_hours": 0}), tmp_path) == []
    assert names_made(sweep(budget={"max_runs": 1}), tmp_path) == ["p=3,seed=0"]
    assert names_made(sweep(), tmp_path) == ["p=99,seed=0"]


def test_the_plan_counts_what_is_left_and_foresees_time_and_disk(finished):
    _, engine, _ = finished
    grown = sweep(seeds=2)
    plan = make_plan(grown, engine.out, 2)
    assert (plan.total, plan.done, plan.failed, plan.left) == (6, 2, 1, 3)
    assert plan.seconds is None  # the largest cannot be tried
    assert "99" in plan.why
    fine = parse_sweep({"base": TINY, "grid": {"batch.p": [2, 3, 4]}})
    plan = make_plan(fine, engine.out, 2)
    assert (plan.total, plan.left, plan.slots) == (3, 1, 1)
    assert plan.seconds > 0
    assert plan.disk > 1000


def test_a_collapsed_run_is_stopped_early_and_recorded(tmp_path):
    base = {
        **TINY,
        "mining": {"positives": "hard", "negatives": "hard"},
        "guard": {"action": "stop"},
        "loss": {"margin": 0.0},
        "optimizer": {"name": "sgd", "lr": 1e-2, "weight_decay": 60.0, "momentum": 0.0},
        "train": {**TINY["train"], "steps": 500, "log_every": 7},
    }
    asked = parse_sweep({"base": base, "grid": {"batch.p": [5]}})
    row = run_sweep(asked, tmp_path, InlineEngine(tmp_path / "runs")).rows[0]
    assert (row["status"], row["verdict"]) == ("stopped", "network-collapse")
    assert row["collapsed"] is True
    assert row["step"] < 500
    assert names_made(asked, tmp_path) == []


FILES = ["summary.json", "measures.json", "metrics.jsonl", "config.toml"]


@pytest.mark.parametrize(("name", "lost"), [("measures.json", True), *((n, False) for n in FILES)])
def test_a_run_with_a_damaged_or_lost_file_is_resumed_not_believed(made, name, lost):
    results, out = made
    victim = out / "runs" / "p=2,seed=0" / name
    before, half = log(victim.parent), victim.read_bytes()[: victim.stat().st_size // 2]
    victim.unlink() if lost else victim.write_bytes(half)
    engine = InlineEngine(out / "runs")
    row = run_sweep(sweep(), out, engine).rows[0]
    assert engine.made == ["p=2,seed=0"]
    if name == "config.toml":  # nobody knows whether it is this run
        assert row["status"] == "failed"
        assert "config.toml is damaged" in row["error"]
    else:
        assert {**row, "seconds": 0} == {**results.rows[0], "seconds": 0}
        assert victim.is_file()
        assert log(victim.parent) == before or name == "metrics.jsonl"  # what was cut is lost
