"""Runs where sentence-transformers is installed: `make test-callbacks`."""

import json

import pytest

pytest.importorskip("sentence_transformers")

from support.text_models import make_sentence_model
from uncollapse.data.sources import open_source


@pytest.fixture(scope="module")
def home(tmp_path_factory, write_texts):
    home = tmp_path_factory.mktemp("sentences")
    make_sentence_model(home / "model")
    write_texts(home, f"sentence:{home / 'model'}")
    return home


def near(cli, run, text, count):
    cli("search", run, text, "-k", count, "--out", "near.json")
    with open("near.json") as file:
        return json.load(file)


def test_a_transformer_is_trained_resumed_and_searched(home, folder, cli):
    words = ["train", home / "run.toml", "--out", "run"]
    cli(*words)
    cli(*words, "--resume", "--set", "train.steps=3")
    labels = {row["label"].partition(" / ")[0] for row in near(cli, "run", "freeze it", 2)}
    assert labels <= {"cards", "weather"}
    assert "freeze the card" in (folder / "run" / "report.html").read_text()


@pytest.mark.parametrize(
    "changes",
    [{"head": "linear", "dim": 4}, {"head": "pca", "dim": 2}, {"head": "none", "dim": 16}],
)
def test_a_frozen_transformer_is_searched_with_texts(home, folder, cli, monkeypatch, changes):
    # with nothing above it, nothing would train
    values = {"freeze": changes["head"] != "none"} | changes
    monkeypatch.setenv("UNCOLLAPSE_CACHE", str(folder / "cache"))
    settings = [f"--set=model.{key}={json.dumps(value)}" for key, value in values.items()]
    cli("train", home / "run.toml", "--out", "run", *settings)
    assert "freeze the card" in (folder / "run" / "report.html").read_text()
    (row,) = near(cli, "run", "freeze the card", 1)
    assert row["neighbour"] == "freeze the card"
    assert row["distance"] == pytest.approx(0.0, abs=1e-5)
    cli("export", "run", code=2)


def test_a_backbone_as_it_comes_embeds_and_searches_files(home, folder, cli):
    name = f"sentence:{home / 'model'}"
    cli("embed", name, "--texts", home / "requests.csv", "--out", "z.npz")
    source = open_source("z.npz")
    assert source.points.shape == (9, 16)
    assert source.names[0] == "freeze my card"
    words = ["search", name, "snow tomorrow", "--gallery", home / "requests.csv", "-k", "1"]
    assert "snow tomorrow" in cli(*words).out
