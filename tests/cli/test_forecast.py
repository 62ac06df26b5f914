"""`uncollapse forecast`: tables, files, and a race whose winner becomes a config."""

import re

import pytest

from support.runs import PLAIN
from uncollapse.training import load_config, train

pytestmark = pytest.mark.slow

HARD = PLAIN + '[mining]\npositives = "hard"\nnegatives = "hard"\n[optimizer]\nlr = 0.01\n'


@pytest.fixture
def config(folder):
    """A config that mines hard triplets, alone in the current folder."""
    (folder / "run.toml").write_text(HARD)
    return folder


def names(place):
    return {path.name for path in place.iterdir()}


def test_tables_and_files_have_drifts_risks_and_a_recommendation(config, cli):
    shapes = ["--p", "2,10", "--k", "4,16", "--dim", "256", "--probe", "10"]
    said = cli("forecast", "run.toml", *shapes, "--out", "out", "--html", "page.html").out
    assert "…" not in said
    assert max(map(len, said.splitlines())) <= 80
    assert {"P", "K", "dim", "drift", "mode", "kept", "risk"} <= set(said.split())
    own = [line.split() for line in said.splitlines() if line.split()[2:3] == ["256"]]
    modes = [cells[8] for cells in own[:4]]  # those of 80 columns, then the other columns
    assert modes[0] == modes[2] == "–"  # K = 4: a class shows no modes
    assert all(float(drift) > 0 for drift in (modes[1], modes[3]))  # batch-hard merges them
    easy = next(line for line in said.splitlines() if line.startswith("easy x semihard"))
    assert " of 4 " in easy
    assert "recommended" in said
    assert "Forecast of run.toml" in (config / "page.html").read_text()
    assert names(config / "out") == {"forecast.csv", "forecast.html"}
    assert "probe_predicted" in (config / "out/forecast.csv").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--k", "100000"], "k: expected at least one K of at most 123"),
        (["--p", "100000"], "p: expected at least one P of at most 10"),
        (["--p", "two"], "--p: expected whole numbers"),
        (["--race"], "room for two strategies, got 1, a tenth"),
        (["--race", "--race-steps", "9"], "room for two strategies, got 9"),
        (["--race-steps", "40"], "--race-steps needs --race"),
    ],
)
def test_the_impossible_is_refused_before_a_batch_is_drawn(config, cli, monkeypatch, words, told):
    drawn = []
    monkeypatch.setattr("uncollapse.samplers.batches.PKSampler.global_batch", drawn.append)
    assert told in cli("forecast", "run.toml", *words, code=2).text
    assert drawn == []
    assert names(config) == {"run.toml"}


def test_a_race_prints_its_table_and_leaves_a_better_config_that_trains(config, cli):
    words = ["forecast", "run.toml", "--race", "--race-steps", "40"]
    said = cli(*words, "--set", "seed=1").out
    shapes = [line for line in said.splitlines() if line.split()[:2] == ["5", "4"]]
    assert len(shapes) == 1  # the run's own
    rows = [re.split(r"  +", line.strip()) for line in said.splitlines() if " x " in line]
    results = {cells[0]: cells[1:] for cells in rows if len(cells) == 6}
    drift, steps, recall, left, result = results["hard x hard"]
    assert float(drift) > 0.25
    assert int(steps) > 0
    assert float(left.removesuffix("%")) > 0
    assert (recall[-1], result) == ("%", "out")
    assert [cells[-1] for cells in results.values()].count("✓ chosen") == 1
    assert "recommended" not in said
    assert "uncollapse train run.better.toml --out runs/run.better" in said
    assert names(config) == {"run.toml", "run.better.toml"}
    first, then = load_config("run.toml", ["seed=1"]), load_config("run.better.toml")
    keys = ["mining.positives", "mining.negatives", "loss.scale_free", "loss.margin", "loss.soft"]
    changed = [key for key in keys if first.flat().get(key) != then.flat().get(key)]
    assert changed
    assert all((f"  {key} = " in said) == (key in changed) for key in keys)
    for key in changed:
        section, name = key.split(".")
        first = first.with_changes({section: {name: then.flat()[key]}})
    assert first.model_dump() == then.model_dump()
    assert train(then, config / "out").summary["status"] == "finished"
    kept = (config / "run.better.toml").read_text()
    assert "expected no run.better.toml beside run.toml" in cli(*words, code=2).err
    assert (config / "run.better.toml").read_text() == kept


def test_an_own_strategy_that_wins_is_said_and_files_have_the_race(config, cli):
    keys = ["mining.positives=easy", "mining.negatives=semihard", "optimizer.lr=1e-12"]
    safe = [word for key in keys for word in ("--set", key)]
    more = ["--p", "2,5", "--k", "4", "--probe", "10", "--out", "out"]
    words = ["forecast", "run.toml", "--race", "--race-steps", "40", *safe]
    said = cli(*words, *more)
    assert "easy x semihard wins: run.toml can stay as it is" in said.text
    assert names(config) == {"run.toml", "out"}
    shapes = {tuple(line.split()[:2]) for line in said.out.splitlines()}
    assert {("2", "4"), ("5", "4")} <= shapes
    assert names(config / "out") == {"forecast.csv", "forecast.html", "race.csv"}
    assert "Race from the untrained network" in (config / "out/forecast.html").read_text()
