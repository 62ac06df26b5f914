"""`uncollapse suspects`: a table that fits a terminal, a .csv file, a page, and clear refusals."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from uncollapse.cli import app
from uncollapse.cli.errors import run

WRONG = [3, 47, 81]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    rng = np.random.default_rng(0)
    labels = np.repeat(["ant", "bee", "cat", "dog"], 25)
    z = 8 * rng.normal(size=(4, 5))[np.arange(100) // 25] + rng.normal(size=(100, 5))
    labels[WRONG] = ["dog", "ant", "bee"]
    names = np.array([f"pics/some/long/folder/of/pictures/{i:03d}.png" for i in range(100)])
    np.savez("z.npz", embeddings=z, labels=labels, names=names, fine_labels=np.arange(100) // 5)
    np.save("bare.npy", z)
    np.save("pixels.npy", rng.integers(0, 255, (100, 8, 8), dtype=np.uint8))
    (tmp_path / names[0]).parent.mkdir(parents=True)
    for name in names:
        Image.new("L", (6, 6), 90).save(name)
    return labels


def test_wrong_labels_are_listed_with_what_they_should_be(folder, capsys):
    assert run(app, ["suspects", "z.npz"]) == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= 80
    assert "3 suspect; about" in said
    for right, given in (("ant", "dog"), ("bee", "ant"), ("dog", "bee")):
        assert any(given in line and right in line for line in said.splitlines())


def test_the_csv_file_has_every_row_worst_first(folder):
    assert run(app, ["suspects", "z.npz", "-k", "6", "--csv", "all.csv"]) == 0
    with open("all.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted(int(row["row"]) for row in rows) == list(range(100))
    assert {int(row["row"]) for row in rows if row["suspect"] == "1"} == set(WRONG)
    scores = [float(row["score"]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert all(row["label"] == folder[int(row["row"])] for row in rows)
    first = [int(one) for one in rows[0]["neighbours"].split()]
    assert len(first) == 6
    assert rows[0]["labels"].split(" | ") == folder[first].tolist()


def test_more_suspects_than_are_shown_are_said(folder, capsys):
    assert run(app, ["suspects", "z.npz", "-n", "1"]) == 0
    assert "2 more than shown, --csv has them all" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("images", [["--images", "pixels.npy"], ["--images", "."], []])
def test_the_page_shows_suspects_with_pictures_or_names(folder, images):
    assert run(app, ["suspects", "z.npz", "--html", "page.html", *images]) == 0
    page = Path("page.html").read_text()
    assert page.count("<img ") == (3 if images else 0)
    assert "dog → ant" in page
    assert "081.png" in page


def test_fine_labels_are_judged_when_asked(folder, capsys):
    assert run(app, ["suspects", "z.npz", "--fine"]) == 0
    assert "of 100 labels wrong" in capsys.readouterr().out
    assert run(app, ["suspects", "bare.npy", "--fine"]) == 2
    assert "fine labels" in capsys.readouterr().err


def test_labels_of_another_file_do(folder, capsys):
    np.save("y.npy", np.load("z.npz")["labels"])
    assert run(app, ["suspects", "bare.npy", "--labels", "y.npy"]) == 0
    assert "3 suspect" in capsys.readouterr().out


def test_shuffled_labels_are_said_to_know_nothing(folder, capsys):
    np.save("y.npy", np.random.default_rng(1).permutation(np.arange(100) % 10))
    assert run(app, ["suspects", "bare.npy", "--labels", "y.npy", "--html", "page.html"]) == 0
    assert "say nothing about their labels" in capsys.readouterr().out
    assert "No label is likelier wrong than right" in Path("page.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bare.npy"], "no labels"),
        (["z.npz", "--split", "test"], "--split"),
        (["z.npz", "--images", "pixels.npy"], "--images"),
        (["z.npz", "--metric", "manhattan"], "'euclidean', 'cosine'"),
        (["nowhere.npz"], "nowhere.npz"),
        (["z.npz", "--html", "p.html", "--images", "few.npy"], "99 images"),
    ],
)
def test_what_cannot_be_done_is_one_line(folder, capsys, words, message):
    np.save("few.npy", np.zeros((99, 4, 4), np.uint8))
    assert run(app, ["suspects", *words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said


CONFIG = """
[data]
name = "folder"
root = "pics"
train_split = "all"
eval_splits = ["all"]
size = 8
[model]
backbone = "mlp"
dim = 8
hidden = [32]
[batch]
p = 4
k = 4
[train]
steps = 1
"""


@pytest.mark.slow
def test_a_run_is_judged_by_its_own_network_and_pictures(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(CONFIG)
    rng = np.random.default_rng(0)
    for c, hue in enumerate(["blue", "green", "red", "white"]):
        for i in range(20):
            folder = tmp_path / "pics" / ("red" if (c, i) == (0, 3) else hue)
            folder.mkdir(parents=True, exist_ok=True)
            pixels = np.full((8, 8, 3), 60) + 150 * (np.arange(3) == 2 - c) + 150 * (c == 3)
            picture = Image.fromarray((pixels + rng.integers(0, 40, (8, 8, 3))).astype(np.uint8))
            picture.save(folder / f"{hue}{i}.png")
    assert run(app, ["train", "run.toml", "--out", "run"]) == 0
    capsys.readouterr()
    assert run(app, ["suspects", "run", "--html", "p.html"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "1 suspect" in said
    assert "blue3.png" in said.replace(" ", "")  # a long path is broken into lines
    assert "was trained on these labels" in said
    assert "data:image/png" in (tmp_path / "p.html").read_text()
    assert run(app, ["suspects", "run", "--labels", "y.npy"]) == 2
