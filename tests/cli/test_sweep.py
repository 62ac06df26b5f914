"""`uncollapse sweep`: a plan, then a table, a page and pictures."""

import csv
import json

import pytest

from support.runs import canonical
from support.sweep_helpers import InlineEngine
from uncollapse.cli import sweep

pytestmark = pytest.mark.slow


def test_a_sweep_leaves_a_table_a_page_and_pictures():
    out = canonical("sweep") / "sweep"
    with (out / "results.csv").open(newline="") as table:
        assert len(list(csv.DictReader(table))) == 4
    page = (out / "sweep.html").read_text()
    assert all(words in page for words in ("No run collapsed", "Diameter against dimension"))
    assert {"diameter", "collapse"} <= {path.stem for path in (out / "pictures").iterdir()}
    summary = json.loads((out / "runs" / "dim=4,seed=0" / "summary.json").read_text())
    assert summary["status"] == "finished"


def test_a_plan_says_the_cost_and_makes_nothing_and_mistakes_are_one_line(folder, cli, monkeypatch):
    file = canonical("sweep") / "run.toml"
    words = ["sweep", file, "--out", "out"]
    assert "'local', 'ray'" in cli(*words, "--engine", "slurm", code=2).err
    assert "--engine ray" in cli(*words, "--address", "auto", code=2).err
    monkeypatch.setattr(sweep, "_engine", lambda name, out, jobs, address: InlineEngine(out))
    plan = cli("sweep", file, "--out", "out", "--plan").text
    assert all(words in plan for words in ("4, 1 at a time", "about", "MB of checkpoints"))
    assert not (folder / "out" / "results.csv").exists()
    (folder / "wrong.toml").write_text(file.read_text().replace("model.dim", "model.dimm"))
    assert "model.dimm" in cli("sweep", "wrong.toml", "--out", "out", code=2).err
