"""`uncollapse embed`, `export` and `search` of texts: a trained run, or a backbone, put to use."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from support.runs import canonical
from uncollapse.cli import app
from uncollapse.cli.embed import usual_split
from uncollapse.cli.printing import run
from uncollapse.data.sources import open_source
from uncollapse.training import parse_config


@pytest.mark.slow
def test_export_writes_an_onnx_file_that_computes_the_same(plain, folder, cli):
    pytest.importorskip("onnxruntime")
    assert "differ from torch's by" in cli("export", plain, "--out", "model.onnx").text
    assert [path.name for path in folder.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize(
    ("splits", "usual"), [([], "all"), (["test"], "test"), (["val", "test"], "test")]
)
def test_the_last_split_a_run_is_evaluated_on_is_taken(splits, usual):
    config = parse_config({"data": {"train_split": "all", "eval_splits": splits}})
    assert usual_split(SimpleNamespace(config=config)) == usual


# Texts

OUT = ["--out", "z.npz"]


@pytest.fixture(scope="module")
def texts(tmp_path_factory, write_texts):
    """A run on texts with fine labels, which no canonical run has."""
    home = tmp_path_factory.mktemp("texts")
    write_texts(home, "support.text_models:letters")
    assert run(app, ["train", str(home / "run.toml"), "--out", str(home / "run")]) == 0
    return home / "run"


@pytest.mark.slow
def test_embed_keeps_texts_as_names_and_labels_as_words(texts, folder, cli):
    cli("embed", texts, "--trust", "--out", "z.npz")
    source = open_source("z.npz")
    assert source.names[2] == "snow tomorrow"
    assert source.labels.tolist() == ["cards", "cards", "weather", "weather"]
    assert source.fine_labels.tolist() == ["freeze", "lost", "snow", "rain"]
    assert source.origin.split == "test"


@pytest.mark.slow
def test_embed_takes_files_of_texts_with_and_without_labels(texts, folder, cli):
    (folder / "some.txt").write_text("one\ntwo\n")
    words = ["embed", texts, "--trust", "--out", "z.npz", "--texts"]
    cli(*words, "some.txt")
    plain = open_source("z.npz")
    assert (plain.names.tolist(), plain.labels, plain.origin.split) == (["one", "two"], None, None)
    for split, count in (([], 9), (["--split", "test"], 4)):
        cli(*words, texts.parent / "requests.csv", *split)
        assert len(open_source("z.npz")) == count
    told = cli(*words, "some.txt", "--split", "test", code=2).err
    assert "only one file of texts with labels has splits" in told


@pytest.mark.slow
def test_queries_are_texts_files_or_rows_and_the_gallery_the_split_or_a_file(texts, folder, cli):
    def near(*words):
        cli("search", texts, "--trust", "--out", "near.json", *words)
        return json.loads((folder / "near.json").read_text())

    first, second = near("freeze the card", "-k", "2")
    assert first["query"] == second["query"] == first["neighbour"] == "freeze the card"
    assert (first["label"], first["distance"]) == ("cards / freeze", pytest.approx(0, abs=1e-5))
    assert "same" not in first
    (folder / "asked.txt").write_text("rain\nmy card\n")
    (folder / "shelf.txt").write_text("rain\nsnow\n")
    entry = near("asked.txt", "-k", "1", "--gallery", "shelf.txt")[0]
    assert (entry["query"], entry["row"], entry["neighbour"]) == ("rain", 0, "rain")
    (entry,) = near("2", "-k", "1")
    assert entry["query"] == "snow tomorrow" != entry["neighbour"]
    assert isinstance(entry["same"], bool)
    shown = cli("search", texts, "--trust", "my card is lost", "-k", "4").out
    assert "network of step 2" in " ".join(shown.split())
    assert "\x1b[2J" not in shown
    assert "[bold]is" in shown.replace("\n", " ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["embed", "RUN", "--images", ".", *OUT], "--images is only for runs"),
        (["search", "RUN", "rain", "-k", "1", "--out", "z.png"], "texts have no pictures"),
        (["search", "RUN", "none.txt"], "no file none.txt"),
        (["search", "RUN"], "image files, texts, or row numbers"),
        (["embed", "RUN", "--texts", "mnist", *OUT], "a dataset of texts, got mnist"),
        (["export", "RUN"], "only networks for images are exported"),
        (["embed", "sentence:x", *OUT], "--texts: expected a file or dataset"),
        (["embed", "sentence:x", "--texts", "a", "--best", *OUT], "--best is only for runs"),
        (["search", "sentence:x", "rain"], "--gallery: expected a file or dataset of texts"),
    ],
)
def test_what_does_not_fit_texts_is_refused(folder, cli, words, message):
    trained = canonical("texts") / "run"
    trust = ["--trust"] if "RUN" in words else []
    words = [trained if word == "RUN" else word for word in words]
    assert message in cli(*words, *trust, code=2).text


@pytest.mark.slow
def test_evaluate_and_forecast_work_on_texts(texts, cli):
    assert "train" in cli("evaluate", texts, "--trust", "--split", "train").out
    words = ["forecast", texts.parent / "run.toml", "--p", "2", "--k", "2"]
    said = cli(*words).text
    assert "recommended" in said
    assert "after 0 steps" not in said  # nothing was probed


def test_texts_name_rows_and_vectors_of_that_name_do_not(folder):
    (folder / "z.csv").write_text("text,label,f0,f1\nhello you,1,0.1,0.2\nbye,2,0.3,0.5\n")
    assert open_source("z.csv").names.tolist() == ["hello you", "bye"]
    for column in ("text", "texts", "names"):
        np.savez("z.npz", embeddings=np.eye(3), **{"text": np.eye(3), column: np.array([*"abc"])})
        assert open_source("z.npz").names.tolist() == ["a", "b", "c"]
