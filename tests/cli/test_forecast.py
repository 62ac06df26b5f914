import pytest

from uncollapse.cli import app
from uncollapse.cli.errors import run
from uncollapse.training import load_config, train

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
[optimiser]
lr = 0.01
[train]
steps = 5
checkpoint_every = 5
tensorboard = "off"
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
    own = [line.split("│") for line in said.splitlines() if line.startswith("│") and "256" in line]
    modes = [cells[6].strip() for cells in own]
    assert modes[0] == modes[2] == "–"  # K = 4: a class shows no modes
    assert all(float(one) > 0 for one in (modes[1], modes[3]))  # batch-hard merges them
    easy = next(line for line in said.splitlines() if "easy x semihard" in line and "│" in line)
    assert " to " in easy
    assert ("after 10 steps" in " ".join(said.split())) == (steps == "10")


def test_c_is_fitted_from_all_the_runs_named(folder, capsys):
    runs = [str(folder / "run0"), str(folder / "run1")]
    assert run(app, words(folder, "--fit-c", *runs)) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "from 2 runs:" in said
    assert "with c = 2 is" not in said


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
    monkeypatch.setattr("uncollapse.samplers.pk.PKSampler.global_batch", drawn.append)
    assert run(app, ["forecast", str(folder / "run.toml"), option, given]) == 2
    assert told in capsys.readouterr().err
    assert drawn == []


def test_runs_without_fit_c_are_refused(folder, capsys):
    assert run(app, [*words(folder), str(folder / "run0")]) == 2
    assert "runs after --fit-c" in capsys.readouterr().err
