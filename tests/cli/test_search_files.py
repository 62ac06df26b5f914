"""`uncollapse search FILE`: rows by number, by name, of another file, or all of them."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from PIL import Image

from uncollapse.cli import app
from uncollapse.cli.errors import run


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x, names = rng.normal(size=(40, 3)), np.array([f"pics/{i}.png" for i in range(40)])
    np.savez("z.npz", embeddings=x, labels=np.arange(40) % 4, names=names)
    np.savez("other.npz", embeddings=x[:5] + 1e-3, labels=np.arange(5) % 4)
    np.save("bare.npy", x)
    (tmp_path / "pics").mkdir()
    for name in names:
        Image.new("L", (6, 6), 90).save(name)
    return x


def entries(name):
    with open(name, newline="") as file:
        return list(csv.DictReader(file))


def test_every_row_is_searched_and_written_while_the_terminal_has_the_first(folder, capsys):
    assert run(app, ["search", "z.npz", "-k", "3", "--out", "near.csv"]) == 0
    said = capsys.readouterr().out
    assert "the first 10 of 40 queries among 40 rows of z.npz" in said
    rows = entries("near.csv")
    assert len(rows) == 120
    distance = np.linalg.norm(folder[:, None] - folder, axis=2)
    np.fill_diagonal(distance, np.inf)
    for query in range(40):
        order = np.argsort(distance[query])[:3]
        mine = rows[3 * query : 3 * query + 3]
        assert [int(row["row"]) for row in mine] == order.tolist()
        assert [row["neighbour"] for row in mine] == [f"pics/{i}.png" for i in order]
        assert [row["same"] == "True" for row in mine] == (order % 4 == query % 4).tolist()
        assert float(mine[0]["distance"]) == pytest.approx(distance[query, order[0]])


def test_a_row_is_meant_by_its_name_or_its_number(folder, capsys):
    assert run(app, ["search", "z.npz", "pics/7.png", "9", "-k", "2", "--out", "near.json"]) == 0
    with open("near.json") as file:
        found = json.load(file)
    assert [one["query"] for one in found] == ["pics/7.png"] * 2 + ["pics/9.png"] * 2
    assert run(app, ["search", "bare.npy", "9", "-k", "1"]) == 0
    assert "label" not in capsys.readouterr().out.splitlines()[-1]


def test_cosine_is_shown_as_a_cosine(folder):
    assert run(app, ["search", "z.npz", "0", "--metric", "cosine", "--out", "near.json"]) == 0
    with open("near.json") as file:
        first = json.load(file)[0]
    unit = folder / np.linalg.norm(folder, axis=1, keepdims=True)
    cosines = unit @ unit[0]
    cosines[0] = -2
    assert first["row"] == int(cosines.argmax())
    assert first["cosine"] == pytest.approx(cosines.max())


def test_rows_of_another_file_may_find_any_row(folder, capsys):
    assert run(app, ["search", "z.npz", "--like", "other.npz", "-k", "1", "--out", "n.csv"]) == 0
    assert [int(row["row"]) for row in entries("n.csv")] == list(range(5))
    assert "5 rows of other.npz among 40 rows of z.npz" in capsys.readouterr().out


def test_pictures_make_a_contact_sheet(folder):
    words = ["search", "z.npz", "3", "4", "-k", "5", "--images", ".", "--out", "sheet.png"]
    assert run(app, words) == 0
    with Image.open("sheet.png") as sheet:
        assert sheet.width > 2 * sheet.height


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["pics/77.png"], "queries: expected a row number of z.npz below 40 or a name"),
        (["40"], "queries: expected a row number"),
        (["0", "-k", "40"], "k: expected at most 39"),
        (["0", "--out", "a.txt"], "--out: expected a file ending in .png, .csv, .json"),
        (["0", "--out", "a.png"], "--images"),
        (["0", "--gallery", "pics"], "--gallery is only for runs"),
        (["--like", "pics"], "got pics"),
        (["0", "--metric", "l2"], "--metric: expected one of"),
    ],
)
def test_bad_input_is_a_sentence(folder, capsys, words, sentence):
    assert run(app, ["search", "z.npz", *words]) == 2
    assert sentence in capsys.readouterr().err
