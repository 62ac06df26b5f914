import csv
import json

import pytest

from sweep_helpers import InlineEngine
from uncollapse.cli import app, sweep
from uncollapse.cli.errors import run

pytestmark = pytest.mark.slow

SWEEP = """
seeds = 2
[base.data]
name = "digits"
[base.model]
backbone = "mlp"
hidden = [16]
[base.evaluate]
max_samples = 100
[base.train]
steps = 2
[[grid]]
batch.p = [2, 4]
batch.k = [2, 3]
[[grid]]
model.dim = [4, 8]
"""


@pytest.fixture
def inline(monkeypatch):
    monkeypatch.setattr(sweep, "_engine", lambda name, out, jobs, address: InlineEngine(out))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SWEEP)
    return path


def test_a_sweep_leaves_a_table_a_page_and_pictures(inline, file, tmp_path, capsys):
    out = tmp_path / "out"
    assert run(app, ["sweep", str(file), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "to make now" in shown
    assert "12 finished, 0 to come" in shown
    with (out / "results.csv").open(newline="") as table:
        assert len(list(csv.DictReader(table))) == 12
    page = (out / "sweep.html").read_text()
    for words in ("No run collapsed", "Diameter against dimension", "95 % intervals", "P by K"):
        assert words in page
    pictures = {path.stem for path in (out / "pictures").iterdir()}
    assert {"diameter-1", "collapse-1", "shapes-1"} <= pictures
    assert "finished" in json.loads(
        (out / "runs" / "p=2,k=2,dim=128,seed=0" / "summary.json").read_text()
    ).get("status")


def test_plan_shows_the_cost_and_makes_nothing(inline, file, tmp_path, capsys):
    out = tmp_path / "out"
    assert run(app, ["sweep", str(file), "--out", str(out), "--plan"]) == 0
    shown = capsys.readouterr().out
    assert "about" in shown
    assert "MB of checkpoints" in shown
    assert not (out / "results.csv").exists()


def test_mistakes_are_one_line(file, tmp_path, capsys):
    out = ["--out", str(tmp_path / "out")]
    assert run(app, ["sweep", str(file), *out, "--engine", "slurm"]) == 2
    assert "'local', 'ray'" in capsys.readouterr().err
    assert run(app, ["sweep", str(file), *out, "--address", "auto"]) == 2
    assert "--engine ray" in capsys.readouterr().err
    file.write_text(SWEEP.replace("batch.p", "batch.q"))
    assert run(app, ["sweep", str(file), *out]) == 2
    assert "batch.q" in capsys.readouterr().err
