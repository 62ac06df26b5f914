"""Runs where sentence-transformers is installed: `make test-callbacks`."""

import json

import pytest

pytest.importorskip("sentence_transformers")

from text_models import make_sentence_model
from uncollapse.cli import app
from uncollapse.cli.errors import run
from uncollapse.data.embeddings import read_embeddings

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


def test_a_backbone_as_it_comes_embeds_and_searches_files(folder, tmp_path, capsys):
    name = f"sentence:{folder / 'model'}"
    out = tmp_path / "z.npz"
    words = ["embed", name, "--texts", str(folder / "requests.csv"), "--out", str(out)]
    assert run(app, words) == 0
    found = read_embeddings(out)
    assert found.points.shape == (8, 16)
    assert found.names[0] == "freeze my card"
    words = ["search", name, "snow tomorrow", "--gallery", str(folder / "requests.csv"), "-k", "1"]
    assert run(app, words) == 0
    assert "snow tomorrow" in capsys.readouterr().out
