"""`uncollapse suspects`: a table that fits a terminal, a .csv file, a page, and clear refusals."""

import csv

import numpy as np
import pytest
from PIL import Image

WRONG = [3, 47, 81]


@pytest.fixture
def labels(folder):
    """Four classes of 25 rows in z.npz, three of them mislabelled; the labels."""
    rng = np.random.default_rng(0)
    labels = np.repeat(["ant", "bee", "cat", "dog"], 25)
    z = 8 * rng.normal(size=(4, 5))[np.arange(100) // 25] + rng.normal(size=(100, 5))
    labels[WRONG] = ["dog", "ant", "bee"]
    names = np.array([f"pics/some/long/folder/of/pictures/{i:03d}.png" for i in range(100)])
    np.savez("z.npz", embeddings=z, labels=labels, names=names, fine_labels=np.arange(100) // 5)
    np.save("bare.npy", z)
    np.save("pixels.npy", rng.integers(0, 255, (100, 8, 8), dtype=np.uint8))
    (folder / names[0]).parent.mkdir(parents=True)
    for name in names:
        Image.new("L", (6, 6), 90).save(name)
    return labels


def test_wrong_labels_are_listed_with_what_they_should_be(labels, cli):
    said = cli("suspects", "z.npz").out
    assert max(map(len, said.splitlines())) <= 80
    assert "3 suspect; about" in said
    for right, given in (("ant", "dog"), ("bee", "ant"), ("dog", "bee")):
        assert any(given in line and right in line for line in said.splitlines())
    assert "2 more than shown, --csv has them all" in cli("suspects", "z.npz", "-n", "1").text


def test_the_csv_file_has_every_row_worst_first(labels, cli):
    cli("suspects", "z.npz", "-k", "6", "--csv", "all.csv")
    with open("all.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted(int(row["row"]) for row in rows) == list(range(100))
    assert {int(row["row"]) for row in rows if row["suspect"] == "1"} == set(WRONG)
    scores = [float(row["score"]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert all(row["label"] == labels[int(row["row"])] for row in rows)
    near = [int(row) for row in rows[0]["neighbours"].split()]
    assert len(near) == 6
    assert rows[0]["labels"].split(" | ") == labels[near].tolist()


@pytest.mark.parametrize("images", [["--images", "pixels.npy"], ["--images", "."], []])
def test_the_page_shows_suspects_with_pictures_or_names(labels, cli, folder, images):
    cli("suspects", "z.npz", "--html", "page.html", *images)
    page = (folder / "page.html").read_text()
    assert page.count("<img ") == (3 if images else 0)
    assert "dog → ant" in page
    assert "081.png" in page


def test_fine_labels_and_labels_of_another_file_are_judged_when_asked(labels, cli, folder):
    assert "of 100 labels wrong" in cli("suspects", "z.npz", "--fine").text
    np.save("y.npy", labels)
    assert "3 suspect" in cli("suspects", "bare.npy", "--labels", "y.npy").text
    np.save("y.npy", np.random.default_rng(1).permutation(np.arange(100) % 10))
    said = cli("suspects", "bare.npy", "--labels", "y.npy", "--html", "page.html").text
    assert "say nothing about their labels" in said
    assert "No label is likelier wrong than right" in (folder / "page.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bare.npy"], "no labels"),
        (["bare.npy", "--fine"], "fine labels"),
        (["z.npz", "--split", "test"], "--split"),
        (["z.npz", "--images", "pixels.npy"], "--images"),
        (["z.npz", "--metric", "manhattan"], "'euclidean', 'cosine'"),
        (["nowhere.npz"], "nowhere.npz"),
        (["z.npz", "--html", "p.html", "--images", "few.npy"], "99 images"),
        (["pics", "--labels", "y.npy"], "--labels is only for files"),
    ],
)
def test_what_cannot_be_done_is_one_line(labels, cli, words, message):
    np.save("few.npy", np.zeros((99, 4, 4), np.uint8))
    assert message in cli("suspects", *words, code=2).err


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
def test_a_run_is_judged_by_its_own_network_and_pictures(folder, cli):
    (folder / "run.toml").write_text(CONFIG)
    rng = np.random.default_rng(0)
    for c, hue in enumerate(["blue", "green", "red", "white"]):
        for i in range(20):
            place = folder / "pics" / ("red" if (c, i) == (0, 3) else hue)
            place.mkdir(parents=True, exist_ok=True)
            pixels = np.full((8, 8, 3), 60) + 150 * (np.arange(3) == 2 - c) + 150 * (c == 3)
            picture = Image.fromarray((pixels + rng.integers(0, 40, (8, 8, 3))).astype(np.uint8))
            picture.save(place / f"{hue}{i}.png")
    cli("train", "run.toml", "--out", "run")
    said = cli("suspects", "run", "--html", "p.html").text
    assert "1 suspect" in said
    assert "blue3.png" in said.replace(" ", "")  # a long path is broken into lines
    assert "was trained on these labels" in said
    assert "data:image/png" in (folder / "p.html").read_text()
