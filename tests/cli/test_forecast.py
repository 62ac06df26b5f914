import re

import pytest

from uncollapse.cli import app
from uncollapse.cli.errors import run
from uncollapse.training import load_config, train

pytestmark = pytest.mark.slow

CONFIG = """
[data]
name = "digits"
[model]
backbone = "mlp"
hidden = [16]
dim = 4
[batch]
p = 5
k = 4
[mining]
positives = "hard"
negatives = "hard"
[optimizer]
lr = 0.01
[train]
steps = 5
checkpoint_every = 5
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    home = tmp_path_factory.mktemp("forecast")
    (home / "run.toml").write_text(CONFIG)
    for seed in (0, 1):
        train(load_config(home / "run.toml", [f"seed={seed}"]), home / f"run{seed}")
    return home


def words(folder, *more):
    return ["forecast", str(folder / "run.toml"), "--p", "2,5", "--k", "4", *more]


def test_the_page_is_written_where_asked(folder, tmp_path, capsys):
    page, out = tmp_path / "page.html", tmp_path / "out"
    assert run(app, words(folder, "--html", str(page), "--out", str(out), "--probe", "10")) == 0
    said = capsys.readouterr().out
    assert "left" in said
    assert "wrote" in said
    assert "Forecast of run.toml" in page.read_text()
    assert {path.name for path in out.iterdir()} == {"forecast.csv", "forecast.html"}
    assert "probe_predicted" in (out / "forecast.csv").read_text()


@pytest.mark.parametrize("steps", ["0", "10"])
def test_the_tables_have_the_mode_drift_and_fit_a_terminal(folder, capsys, monkeypatch, steps):
    monkeypatch.setenv("COLUMNS", "80")
    shapes = ["--p", "2,10", "--k", "4,16", "--dim", "256", "--probe", steps]
    assert run(app, ["forecast", str(folder / "run.toml"), *shapes]) == 0
    said = capsys.readouterr().out
    assert "…" not in said
    assert max(map(len, said.splitlines())) <= 80
    own = [line.split() for line in said.splitlines() if line.split()[2:3] == ["256"]]
    modes = [cells[5] for cells in own]
    assert modes[0] == modes[2] == "–"  # K = 4: a class shows no modes
    assert all(float(one) > 0 for one in (modes[1], modes[3]))  # batch-hard merges them
    easy = next(line for line in said.splitlines() if line.startswith("easy x semihard"))
    assert " to " in easy
    assert ("after 10 steps" in " ".join(said.split())) == (steps == "10")


@pytest.mark.parametrize(
    ("option", "given", "told"),
    [
        ("--k", "100000", "k: expected at least one K of at most 123, the samples of the largest"),
        ("--p", "100000", "p: expected at least one P of at most 10, the data's classes"),
    ],
)
def test_a_batch_that_the_data_cannot_fill_is_refused_before_it_is_drawn(
    folder, capsys, monkeypatch, option, given, told
):
    drawn = []
    monkeypatch.setattr("uncollapse.samplers.batches.PKSampler.global_batch", drawn.append)
    assert run(app, ["forecast", str(folder / "run.toml"), option, given]) == 2
    assert told in capsys.readouterr().err
    assert drawn == []


@pytest.fixture
def alone(folder, tmp_path):
    """The config in a folder of its own."""
    (tmp_path / "run.toml").write_text((folder / "run.toml").read_text())
    return tmp_path


def race(folder, *more):
    return ["forecast", str(folder / "run.toml"), "--race", "--race-steps", "40", *more]


def test_a_race_prints_its_table_and_leaves_nothing_but_the_better_config(
    alone, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(alone)
    assert run(app, ["forecast", "run.toml", "--race", "--race-steps", "40"]) == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80
    assert "…" not in said
    shapes = [line for line in said.splitlines() if line.split()[:2] == ["5", "4"]]
    assert len(shapes) == 1  # the run's own
    rows = [re.split(r"  +", line.strip()) for line in said.splitlines() if " x " in line]
    results = {cells[0]: cells[1:] for cells in rows if len(cells) == 6}
    drift, steps, recall, left, result = results["hard x hard"]
    assert float(drift) > 0.25
    assert int(steps) > 0
    assert recall.endswith("%")
    assert float(left) > 0
    assert result == "out"
    assert [cells[-1] for cells in results.values()].count("wins") == 1
    assert "recommended" not in said
    assert "uncollapse train run.better.toml --out runs/run.better" in said
    assert {path.name for path in alone.iterdir()} == {"run.toml", "run.better.toml"}


def test_the_better_config_has_the_keys_that_were_told_and_trains(alone, capsys):
    assert run(app, race(alone, "--set", "seed=1")) == 0
    said = capsys.readouterr().out
    first = load_config(alone / "run.toml", ["seed=1"])
    then = load_config(alone / "run.better.toml")
    keys = ["mining.positives", "mining.negatives", "loss.scale_free", "loss.margin", "loss.soft"]
    changed = [key for key in keys if first.value(key) != then.value(key)]
    assert changed
    assert all((f"  {key} = " in said) == (key in changed) for key in keys)
    for key in changed:
        section, name = key.split(".")
        first = first.with_changes({section: {name: then.value(key)}})
    assert first.model_dump() == then.model_dump()
    assert train(then, alone / "out").summary["status"] == "finished"


def test_a_better_config_that_is_there_is_kept_and_nothing_is_run(alone, capsys, monkeypatch):
    (alone / "run.better.toml").write_text("mine")
    monkeypatch.setattr("uncollapse.training.predictions.forecast_run", None)
    assert run(app, race(alone)) == 2
    assert "expected no run.better.toml beside run.toml" in capsys.readouterr().err
    assert (alone / "run.better.toml").read_text() == "mine"


def test_an_own_strategy_that_wins_is_said_and_nothing_is_written(alone, capsys):
    safe = ["mining.positives=easy", "mining.negatives=semihard", "optimizer.lr=1e-12"]
    assert run(app, race(alone, *(word for key in safe for word in ("--set", key)))) == 0
    assert "easy x semihard wins: run.toml can stay as it is" in capsys.readouterr().out
    assert {path.name for path in alone.iterdir()} == {"run.toml"}


def test_a_race_works_with_shapes_probe_and_files(alone, capsys):
    out = alone / "out"
    more = ["--p", "2,5", "--k", "4", "--probe", "10", "--out", str(out)]
    assert run(app, race(alone, *more)) == 0
    said = capsys.readouterr().out
    shapes = [line.split()[:2] for line in said.splitlines()]
    assert [["2", "4"] in shapes, ["5", "4"] in shapes] == [True, True]
    assert {path.name for path in out.iterdir()} == {"forecast.csv", "forecast.html", "race.csv"}
    assert "Race from the untrained network" in (out / "forecast.html").read_text()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--race"], "--race-steps: expected at least 12, room for two strategies, got 0, a tenth"),
        (["--race", "--race-steps", "9"], "room for two strategies, got 9"),
        (["--race-steps", "40"], "--race-steps needs --race"),
    ],
)
def test_a_budget_without_room_names_its_option_at_once(alone, capsys, monkeypatch, more, told):
    monkeypatch.setattr("uncollapse.training.predictions.forecast_run", None)
    assert run(app, ["forecast", str(alone / "run.toml"), *more]) == 2
    assert told in " ".join(capsys.readouterr().err.split())
    assert {path.name for path in alone.iterdir()} == {"run.toml"}
