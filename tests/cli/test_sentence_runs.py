"""Runs where sentence-transformers is installed: `make test-callbacks`."""

import json

import pytest

pytest.importorskip("sentence_transformers")

from text_models import make_sentence_model
from uncollapse.cli import app
from uncollapse.cli.errors import run
from uncollapse.data.sources import open_source

CSV = """text,label,split
freeze my card,cards,train
block the card please,cards,train
will it rain today,weather,train
is it cold today,weather,train
freeze the account,cards,test
block my account,cards,test
snow tomorrow,weather,test
rain tomorrow,weather,test
"""
CONFIG = """
[data]
name = "texts"
root = "{root}"
[model]
backbone = "sentence:{model}"
dim = 4
[batch]
p = 2
k = 2
[train]
steps = 2
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sentences")
    make_sentence_model(folder / "model")
    (folder / "requests.csv").write_text(CSV)
    text = CONFIG.format(root=folder / "requests.csv", model=folder / "model")
    (folder / "run.toml").write_text(text)
    return folder


def test_a_transformer_is_trained_resumed_and_searched(folder, tmp_path):
    words = ["train", str(folder / "run.toml"), "--out", str(tmp_path / "run")]
    assert run(app, words) == 0
    assert run(app, [*words, "--resume", "--set", "train.steps=3"]) == 0
    out = tmp_path / "near.json"
    words = ["search", str(tmp_path / "run"), "freeze it", "-k", "2", "--out", str(out)]
    assert run(app, words) == 0
    assert {row["label"] for row in json.loads(out.read_text())} <= {"cards", "weather"}
    assert "freeze the account" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize(
    "changes",
    [{"head": "linear", "dim": 4}, {"head": "pca", "dim": 2}, {"head": "none", "dim": 16}],
)
def test_a_frozen_transformer_gives_features_and_is_searched_with_texts(
    folder, tmp_path, monkeypatch, changes
):
    if changes["head"] == "none":
        changes = changes | {"freeze": False}  # with nothing above it, nothing would train
    monkeypatch.setenv("UNCOLLAPSE_CACHE", str(tmp_path / "cache"))
    values = {"freeze": True} | changes
    settings = [f"--set=model.{key}={json.dumps(value)}" for key, value in values.items()]
    words = ["train", str(folder / "run.toml"), "--out", str(tmp_path / "run"), *settings]
    assert run(app, words) == 0
    assert "freeze the account" in (tmp_path / "run" / "report.html").read_text()
    out = tmp_path / "near.json"
    words = ["search", str(tmp_path / "run"), "freeze the account", "-k", "1", "--out", str(out)]
    assert run(app, words) == 0
    (row,) = json.loads(out.read_text())
    assert row["neighbour"] == "freeze the account"
    assert row["distance"] == pytest.approx(0.0, abs=1e-5)
    words = ["export", str(tmp_path / "run"), "--out", str(tmp_path / "model.onnx")]
    assert run(app, words) == 2


def test_a_backbone_as_it_comes_embeds_and_searches_files(folder, tmp_path, capsys):
    name = f"sentence:{folder / 'model'}"
    out = tmp_path / "z.npz"
    words = ["embed", name, "--texts", str(folder / "requests.csv"), "--out", str(out)]
    assert run(app, words) == 0
    found = open_source(out)
    assert found.points.shape == (8, 16)
    assert found.names[0] == "freeze my card"
    words = ["search", name, "snow tomorrow", "--gallery", str(folder / "requests.csv"), "-k", "1"]
    assert run(app, words) == 0
    assert "snow tomorrow" in capsys.readouterr().out
