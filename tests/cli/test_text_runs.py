import json

import numpy as np
import pytest

from uncollapse.cli import app
from uncollapse.cli.errors import run
from uncollapse.data.sources import open_source

CONFIG = """
[data]
name = "texts"
root = "{root}"
eval_splits = ["test"]
[model]
backbone = "text_models:letters"
dim = 4
[batch]
p = 2
k = 2
[train]
steps = 2
"""
CSV = """text,label,fine_label,split
freeze my card,cards,freeze,train
block the card,cards,freeze,train
order a new card,cards,order,train
will it rain,weather,rain,train
is it cold today,weather,cold,train
freeze the card,cards,freeze,test
my card [bold]is[/bold] lost \x1b[2J,cards,lost,test
snow tomorrow,weather,snow,test
rain tomorrow,weather,rain,test
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    (folder / "requests.csv").write_text(CSV)
    (folder / "run.toml").write_text(CONFIG.format(root=folder / "requests.csv"))
    words = ["train", str(folder / "run.toml"), "--out", str(folder / "run")]
    assert run(app, words) == 0
    return folder / "run"


def test_embed_keeps_texts_as_names_and_labels_as_words(trained, tmp_path):
    assert run(app, ["embed", str(trained), "--trust", "--out", str(tmp_path / "z.npz")]) == 0
    found = open_source(tmp_path / "z.npz")
    assert found.names[2] == "snow tomorrow"
    assert found.labels.tolist() == ["cards", "cards", "weather", "weather"]
    assert found.fine_labels.tolist() == ["freeze", "lost", "snow", "rain"]
    assert found.origin.split == "test"


def test_embed_takes_files_of_texts_with_and_without_labels(trained, tmp_path):
    (tmp_path / "some.txt").write_text("one\ntwo\n")
    words = ["embed", str(trained), "--trust", "--texts", str(tmp_path / "some.txt")]
    assert run(app, [*words, "--out", str(tmp_path / "a.npz")]) == 0
    plain = open_source(tmp_path / "a.npz")
    assert (plain.names.tolist(), plain.labels, plain.origin.split) == (["one", "two"], None, None)
    words = ["embed", str(trained), "--trust", "--texts", str(trained.parent / "requests.csv")]
    assert run(app, [*words, "--out", str(tmp_path / "b.npz")]) == 0
    assert len(open_source(tmp_path / "b.npz")) == 9
    assert run(app, [*words, "--split", "test", "--out", str(tmp_path / "c.npz")]) == 0
    assert len(open_source(tmp_path / "c.npz")) == 4


def test_a_text_finds_the_nearest_texts_with_their_labels(trained, tmp_path, capsys):
    out = tmp_path / "near.json"
    words = ["search", str(trained), "--trust", "freeze the card", "-k", "2", "--out", str(out)]
    assert run(app, words) == 0
    rows = json.loads(out.read_text())
    assert [row["query"] for row in rows] == ["freeze the card"] * 2
    assert rows[0]["neighbour"] == "freeze the card"  # itself: it is a text of the split
    assert (rows[0]["label"], rows[0]["distance"]) == ("cards / freeze", pytest.approx(0, abs=1e-5))
    assert "same" not in rows[0]
    assert "network of step 2" in capsys.readouterr().out


def test_queries_may_be_a_file_or_rows_and_the_gallery_a_file(trained, tmp_path):
    (tmp_path / "asked.txt").write_text("rain\nmy card\n")
    (tmp_path / "shelf.txt").write_text("rain\nsnow\n")
    out = tmp_path / "near.csv"
    words = [
        "search",
        str(trained),
        "--trust",
        str(tmp_path / "asked.txt"),
        "-k",
        "1",
        "--out",
        str(out),
    ]
    assert run(app, [*words, "--gallery", str(tmp_path / "shelf.txt")]) == 0
    assert out.read_text().splitlines()[1].startswith("rain,1,0,rain,")
    out = tmp_path / "rows.json"
    assert run(app, ["search", str(trained), "--trust", "2", "-k", "1", "--out", str(out)]) == 0
    (row,) = json.loads(out.read_text())
    assert row["query"] == "snow tomorrow"
    assert row["neighbour"] != "snow tomorrow"
    assert isinstance(row["same"], bool)


def test_a_text_neither_colours_the_terminal_nor_moves_its_cursor(trained, capsys):
    assert run(app, ["search", str(trained), "--trust", "my card is lost", "-k", "4"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b[2J" not in shown
    assert "[bold]is" in shown.replace("\n", " ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["embed", "RUN", "--images", ".", "--out", "z.npz"],
            "--images is only for runs",
        ),
        (["search", "RUN", "rain", "-k", "1", "--out", "z.png"], "texts have no pictures"),
        (["search", "RUN", "none.txt"], "no file none.txt"),
        (["search", "RUN"], "image files, texts, or row numbers"),
        (["embed", "RUN", "--texts", "mnist", "--out", "z.npz"], "a dataset of texts, got mnist"),
        (["export", "RUN"], "only networks for images are exported"),
        (["embed", "sentence:x", "--out", "z.npz"], "--texts: expected a file or dataset of texts"),
        (
            ["embed", "sentence:x", "--texts", "a.txt", "--best", "--out", "z.npz"],
            "--best is only for runs",
        ),
        (["search", "sentence:x", "rain"], "--gallery: expected a file or dataset of texts"),
    ],
)
def test_what_does_not_fit_texts_is_refused(trained, tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    trust = ["--trust"] if "RUN" in words else []
    assert run(app, [*(word.replace("RUN", str(trained)) for word in words), *trust]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_split_of_texts_without_labels_is_refused(trained, tmp_path, capsys):
    (tmp_path / "some.txt").write_text("one\n")
    words = [
        "embed",
        str(trained),
        "--trust",
        "--texts",
        str(tmp_path / "some.txt"),
        "--split",
        "test",
    ]
    assert run(app, [*words, "--out", str(tmp_path / "z.npz")]) == 2
    assert "only one file of texts with labels has splits" in capsys.readouterr().err


def test_evaluate_and_forecast_work_on_texts(trained, capsys):
    assert run(app, ["evaluate", str(trained), "--trust", "--split", "train"]) == 0
    assert "train" in capsys.readouterr().out
    words = ["forecast", str(trained.parent / "run.toml"), "--p", "2", "--k", "2"]
    assert run(app, words) == 0
    assert "recommended" in capsys.readouterr().out


@pytest.mark.parametrize("column", ["text", "texts", "names"])
def test_diagnose_shows_the_texts_of_a_file(tmp_path, column):
    points = np.random.default_rng(0).normal(size=(12, 3))
    texts = np.array([f"request <{row}>" for row in range(12)])
    file = {"embeddings": points, "labels": np.arange(12) % 3, column: texts}
    np.savez(tmp_path / "z.npz", **file)
    words = ["diagnose", str(tmp_path / "z.npz"), "--html", str(tmp_path / "page.html")]
    assert run(app, words) == 0
    page = (tmp_path / "page.html").read_text()
    assert "request &lt;1" in page
    assert "request <1" not in page
    assert "Nearest neighbours" in page


def test_a_column_of_texts_names_the_rows_of_a_table(tmp_path):
    (tmp_path / "z.csv").write_text("text,label,f0,f1\nhello you,1,0.1,0.2\nbye,2,0.3,0.5\n")
    assert open_source(tmp_path / "z.csv").names.tolist() == ["hello you", "bye"]


def test_vectors_called_text_are_no_names(tmp_path):
    np.savez(tmp_path / "z.npz", embeddings=np.eye(3), text=np.eye(3), names=np.array(list("abc")))
    assert open_source(tmp_path / "z.npz").names.tolist() == ["a", "b", "c"]
