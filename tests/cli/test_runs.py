import json
import os
import shutil
import signal
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from uncollapse.cli import app
from uncollapse.cli.errors import run
from uncollapse.data.sources import open_source
from uncollapse.training import Run
from uncollapse.training.manifest import record_files
from uncollapse.training.measures import write_measures

pytestmark = pytest.mark.slow

CONFIG = """
[data]
name = "digits"
[model]
backbone = "mlp"
dim = 4
hidden = [16]
[batch]
p = 5
k = 4
[train]
steps = 12
evaluate_every = 6
checkpoint_every = 6
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli")
    (folder / "run.toml").write_text(CONFIG)
    words = ["train", str(folder / "run.toml"), "--out", str(folder / "run")]
    assert run(app, words) == 0
    return folder / "run"


def test_train_leaves_a_run_directory_with_a_report(trained):
    assert json.loads((trained / "summary.json").read_text())["status"] == "finished"
    assert "<html" in (trained / "report.html").read_text()


def test_training_twice_into_one_folder_needs_resume(trained, capsys):
    words = ["train", str(trained.parent / "run.toml"), "--out", str(trained)]
    assert run(app, words) == 2
    assert "--resume" in capsys.readouterr().err
    assert run(app, [*words, "--resume"]) == 0


def test_an_interrupted_training_exits_with_130(trained, tmp_path, monkeypatch, capsys):
    from uncollapse.training.session import Session

    advance = Session.advance

    def interrupted(self):
        os.kill(os.getpid(), signal.SIGINT)
        return advance(self)

    monkeypatch.setattr(Session, "advance", interrupted)
    words = ["train", str(trained.parent / "run.toml"), "--out", str(tmp_path / "run")]
    assert run(app, words) == 130
    said = capsys.readouterr()
    assert "step 1 is saved; go on with --resume" in said.err
    assert "interrupted at step 1" in said.out


def test_what_stands_in_for_a_damaged_checkpoint_is_said_with_its_step(trained, tmp_path, capsys):
    shutil.copytree(trained, tmp_path / "run")
    newest = tmp_path / "run" / "checkpoints" / "step-00000012" / "weights.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    place = str(tmp_path / "run")
    words = {
        "evaluate": ["evaluate", place],
        "embed": ["embed", place, "--out", str(tmp_path / "z.npz")],
        "search": ["search", place, "0"],
        "export": ["export", place, "--out", str(tmp_path / "model.onnx")],
    }
    for command in words.values():
        assert run(app, command) == 0
        said = capsys.readouterr()
        assert "warning: " in said.err
        assert "its checksum differs; using the checkpoint of step 6" in said.err
        assert "network of step 6" in said.out
    with pytest.warns(UserWarning, match="using the checkpoint of step 6"):
        Run.open(place).load_model()


def test_set_overrides_a_key_and_refuses_an_unknown_one(trained, tmp_path, capsys):
    file = str(trained.parent / "run.toml")
    words = ["train", file, "--out", str(tmp_path / "run")]
    assert run(app, [*words, "--set", "minning.positives=easy"]) == 2
    assert "did you mean 'mining'" in capsys.readouterr().err
    assert run(app, [*words, "--set", "train.steps=1", "--set", "mining.positives=hard"]) == 0
    assert 'positives = "hard"' in (tmp_path / "run" / "config.toml").read_text()


def test_start_and_end_stand_beside_each_other_and_a_fall_is_said(trained, tmp_path, capsys):
    assert run(app, ["evaluate", str(trained)]) == 0
    text = capsys.readouterr().out
    scores = Run(trained).measures()
    for word, moment in (("before", scores.before), ("after", scores.after)):
        line = next(x for x in text.splitlines() if word in x)
        assert f"{100 * moment.splits['test'].scores['recall@1']:.2f}" in line

    shutil.copytree(trained, tmp_path / "run")
    before = scores.before.splits["test"]
    better = replace(before, scores={**before.scores, "recall@1": 0.999})
    better = replace(scores.before, splits={"test": better})
    manifest = tmp_path / "run" / "manifest.json"
    recorded = manifest.read_bytes()
    write_measures(tmp_path / "run", replace(scores, before=better))
    manifest.write_bytes(recorded)
    assert run(app, ["evaluate", str(tmp_path / "run")]) == 0
    told = capsys.readouterr()
    assert "measures.json is damaged: its checksum differs" in " ".join(told.err.split())
    assert "ends below" not in told.out  # nor is it believed
    record_files(tmp_path / "run", "measures.json")
    assert run(app, ["evaluate", str(tmp_path / "run")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "R@1 on test ends below the network before training: " in said
    assert "% against 99.9 %." in said
    words = ["train", str(trained.parent / "run.toml"), "--out", str(tmp_path / "run"), "--resume"]
    assert run(app, words) == 0
    assert "R@1 on test ends below" in " ".join(capsys.readouterr().out.split())


def test_evaluate_shows_a_table_for_any_split(trained, capsys):
    assert run(app, ["evaluate", str(trained), "--split", "train", "--clusters", "1"]) == 0
    shown = capsys.readouterr().out
    assert "R@1" in shown
    assert "NMI" in shown
    assert "before" not in shown  # the run measured another split


@pytest.mark.parametrize("ending", ["npz", "parquet", "safetensors"])
def test_embed_writes_a_file_that_can_be_read(trained, tmp_path, ending):
    out = tmp_path / f"z.{ending}"
    assert run(app, ["embed", str(trained), "--out", str(out)]) == 0
    found = open_source(out)
    assert found.points.shape == (599, 4)
    assert len(np.unique(found.labels)) == 10


def test_search_finds_neighbours_and_draws_a_contact_sheet(trained, tmp_path, capsys):
    sheet = tmp_path / "sheet.png"
    words = ["search", str(trained), "0", "5", "-k", "3", "--out", str(sheet)]
    assert run(app, words) == 0
    rows = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith(("0 (", "5 ("))
    ]
    assert len(rows) >= 2  # a query, then its neighbours
    with Image.open(sheet) as image:
        assert image.width > image.height


def test_search_takes_image_files_and_a_gallery_of_them(trained, tmp_path, capsys):
    rng = np.random.default_rng(0)
    for name in ("a", "b", "c"):
        pixels = rng.integers(0, 255, (8, 8), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{name}.png")
    query = str(tmp_path / "a.png")
    assert run(app, ["search", str(trained), query, "--gallery", str(tmp_path), "-k", "2"]) == 0
    shown = "".join(capsys.readouterr().out.split()).replace("│", "")
    assert "a.png" in shown
    assert run(app, ["search", str(trained), str(tmp_path / "none.png")]) == 2
    assert "no such image file" in capsys.readouterr().err
    assert run(app, ["search", str(trained), "99999"]) == 2
    assert "below 599" in capsys.readouterr().err
    assert run(app, ["search", str(trained), "²"]) == 2  # a digit to Python, but no number
    assert "²: no such image file or folder" in capsys.readouterr().err


def test_a_file_name_neither_colours_the_terminal_nor_moves_its_cursor(
    trained, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "1000")  # or long names are broken into lines
    names = ["[red]a[bold]", "[/nothing]", "\x1b[2J\x1b]0;title\x07", "photo\u202egpj"]
    (tmp_path / "[").mkdir()
    for name in names:
        Image.new("L", (8, 8)).save(tmp_path / f"{name}.png")
    words = ["search", str(trained), str(tmp_path / f"{names[0]}.png")]
    assert run(app, [*words, "--gallery", str(tmp_path), "-k", "4"]) == 0
    shown = "".join(capsys.readouterr().out.split()).replace("│", "")
    assert "\x1b" not in shown
    for name in ("[red]a[bold].png", "[/nothing].png", "[U+001B][2J", "photo[U+202E]gpj"):
        assert name in shown
    assert run(app, ["search", str(trained), str(tmp_path / f"{names[2]}none.png")]) == 2
    assert "\x1b" not in capsys.readouterr().err


def test_export_writes_an_onnx_file_that_computes_the_same(trained, tmp_path, capsys):
    pytest.importorskip("onnxruntime")
    out = tmp_path / "model.onnx"
    assert run(app, ["export", str(trained), "--out", str(out)]) == 0
    assert "differ from torch's by" in capsys.readouterr().out
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]


def test_forecast_shows_risks_and_a_recommendation(trained, tmp_path, capsys):
    file = str(trained.parent / "run.toml")
    words = ["forecast", file, "--p", "2,5", "--k", "4", "--dim", "4,16", "--out", str(tmp_path)]
    assert run(app, [*words, "--set", "mining.positives=hard"]) == 0
    shown = capsys.readouterr().out
    assert "recommended" in shown
    assert "not a guarantee" in shown
    assert (tmp_path / "forecast.csv").read_text().count("\n") > 4
    assert run(app, ["forecast", file, "--p", "two"]) == 2
    assert "--p: expected whole numbers" in capsys.readouterr().err


def test_datasets_lists_what_is_found(capsys):
    assert run(app, ["datasets"]) == 0
    assert "digits" in capsys.readouterr().out
    assert run(app, ["datasets", "digits", "--strict"]) == 0


def test_evaluate_takes_the_measures_of_a_run_that_has_none(trained, tmp_path, capsys):
    old = tmp_path / "old"
    shutil.copytree(trained, old)
    for name in ("measures.json", "embeddings-after.safetensors"):
        (old / name).unlink()
    assert run(app, ["evaluate", str(old), "--measure", "--clusters", "10"]) == 0
    shown = capsys.readouterr().out
    assert "NMI+" in shown
    for name in ("measures.json", "embeddings-after.safetensors"):
        assert (old / name).read_bytes() == (trained / name).read_bytes()
