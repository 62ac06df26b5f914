"""`uncollapse search`: rows of a file by number, by name or of another file; images in a run."""

import csv
import json

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def rows(folder):
    rng = np.random.default_rng(0)
    x, names = rng.normal(size=(40, 3)), np.array([f"pics/{i}.png" for i in range(40)])
    np.savez("z.npz", embeddings=x, labels=np.arange(40) % 4, names=names)
    np.savez("other.npz", embeddings=x[:5] + 1e-3, labels=np.arange(5) % 4)
    np.save("bare.npy", x)
    (folder / "pics").mkdir()
    for name in names:
        Image.new("L", (6, 6), 90).save(name)
    return x


def written(name):
    with open(name, newline="") as file:
        return json.load(file) if name.endswith("json") else list(csv.DictReader(file))


def test_every_row_is_searched_and_written_while_the_terminal_has_the_first(rows, cli):
    said = cli("search", "z.npz", "-k", "3", "--out", "near.csv").text
    assert "the first 10 of 40 queries among 40 rows of z.npz" in said
    entries = written("near.csv")
    assert len(entries) == 120
    distance = np.linalg.norm(rows[:, None] - rows, axis=2)
    np.fill_diagonal(distance, np.inf)
    for query in range(40):
        order = np.argsort(distance[query])[:3]
        own = entries[3 * query : 3 * query + 3]
        assert [int(entry["row"]) for entry in own] == order.tolist()
        assert [entry["neighbour"] for entry in own] == [f"pics/{i}.png" for i in order]
        assert [entry["same"] == "True" for entry in own] == (order % 4 == query % 4).tolist()
        assert float(own[0]["distance"]) == pytest.approx(distance[query, order[0]])


def test_a_row_is_meant_by_its_name_or_its_number_and_a_cosine_is_shown_as_one(rows, cli):
    cli("search", "z.npz", "pics/7.png", "9", "-k", "2", "--out", "near.json")
    queries = [entry["query"] for entry in written("near.json")]
    assert queries == ["pics/7.png"] * 2 + ["pics/9.png"] * 2
    assert "label" not in cli("search", "bare.npy", "9", "-k", "1").out

    cli("search", "z.npz", "0", "--metric", "cosine", "--out", "near.json")
    first = written("near.json")[0]
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = unit @ unit[0]
    cosines[0] = -2
    assert first["row"] == int(cosines.argmax())
    assert first["cosine"] == pytest.approx(cosines.max())


def test_rows_of_another_file_may_find_any_row_and_pictures_make_a_sheet(rows, cli):
    cli("search", "z.npz", "3", "4", "-k", "5", "--images", ".", "--out", "sheet.png")
    with Image.open("sheet.png") as sheet:
        assert sheet.width > 2 * sheet.height
    said = cli("search", "z.npz", "--like", "other.npz", "-k", "1", "--out", "n.csv").text
    assert [int(entry["row"]) for entry in written("n.csv")] == list(range(5))
    assert "5 rows of other.npz among 40 rows of z.npz" in said


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
def test_bad_input_is_a_sentence(rows, cli, words, sentence):
    assert sentence in cli("search", "z.npz", *words, code=2).err


@pytest.mark.slow
def test_a_run_finds_neighbours_among_its_split_or_image_files(plain, folder, cli):
    cli("search", plain, "0", "5", "-k", "3", "--out", "sheet.png")
    with Image.open("sheet.png") as sheet:
        assert sheet.width > sheet.height
    for grey, name in enumerate(("a", "b", "c")):
        Image.new("L", (8, 8), 80 * grey).save(f"{name}.png")
    assert "a.png" in cli("search", plain, "a.png", "--gallery", ".", "-k", "2").out
    assert "no such image file" in cli("search", plain, "none.png", code=2).err
    assert "below 599" in cli("search", plain, "99999", code=2).err
    # a digit to Python, but no number
    assert "²: no such image file or folder" in cli("search", plain, "²", code=2).err


@pytest.mark.slow
def test_a_file_name_cannot_steer_the_terminal(plain, folder, cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")  # or long names are broken into lines
    names = ["[red]a[bold]", "[/nothing]", "\x1b[2J\x1b]0;title\x07", "photo\u202egpj"]
    (folder / "[").mkdir()
    for name in names:
        Image.new("L", (8, 8)).save(folder / f"{name}.png")
    words = ["search", plain, folder / f"{names[0]}.png", "--gallery", folder, "-k", "4"]
    shown = cli(*words).out
    assert "\x1b" not in shown
    for name in ("[red]a[bold].png", "[/nothing].png", "[U+001B][2J", "photo[U+202E]gpj"):
        assert name in shown
    assert "\x1b" not in cli("search", plain, folder / f"{names[2]}none.png", code=2).err


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_a_mapped_file_of_float16_is_searched(folder, cli, metric):
    np.save("half.npy", np.random.default_rng(0).normal(size=(20, 3)).astype(np.float16))
    cli("search", "half.npy", "-k", "1", "--metric", metric, "--out", "near.json")
    x = np.load("half.npy").astype(np.float64)
    x = x / np.linalg.norm(x, axis=1, keepdims=True) if metric == "cosine" else x
    distance = np.linalg.norm(x[:, None] - x, axis=2)
    np.fill_diagonal(distance, np.inf)
    assert [entry["row"] for entry in written("near.json")] == distance.argmin(axis=1).tolist()
