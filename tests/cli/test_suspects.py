"""`uncollapse suspects`: a table that fits a terminal, a .csv file, a page, and clear refusals."""

import csv

import numpy as np
import pytest
from PIL import Image

from support.runs import canonical

RIGHT = {3: "ant", 47: "bee", 81: "dog"}  # of the rows whose label is wrong


@pytest.fixture
def labels(folder):
    """Four classes of 25 rows in z.npz, three of them mislabelled; the labels."""
    rng = np.random.default_rng(0)
    labels = np.repeat(["ant", "bee", "cat", "dog"], 25)
    z = 8 * rng.normal(size=(4, 5))[np.arange(100) // 25] + rng.normal(size=(100, 5))
    labels[[*RIGHT]] = ["dog", "ant", "bee"]
    names = np.array([f"pics/some/long/folder/of/pictures/{i:03d}.png" for i in range(100)])
    np.savez("z.npz", embeddings=z, labels=labels, names=names, fine_labels=np.arange(100) // 5)
    np.save("bare.npy", z)
    np.save("pixels.npy", rng.integers(0, 255, (100, 8, 8), dtype=np.uint8))
    (folder / names[0]).parent.mkdir(parents=True)
    for name in names:
        Image.new("L", (6, 6), 90).save(name)
    return labels


def test_wrong_labels_are_listed_and_the_csv_file_has_every_row_worst_first(labels, cli):
    said = cli("suspects", "z.npz").out
    assert max(map(len, said.splitlines())) <= 80
    assert "3 suspect; about" in said
    pairs = [line.split()[-7:-5] for line in said.splitlines() if " of 10 " in line]
    assert sorted(pairs) == [["ant", "bee"], ["bee", "dog"], ["dog", "ant"]]  # given, suggested
    words = ["suspects", "z.npz", "-k", "6", "-n", "1", "--csv", "all.csv"]
    assert "2 more than shown, --csv has them all" in cli(*words).text
    with open("all.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted(int(row["row"]) for row in rows) == list(range(100))
    scores = [float(row["score"]) for row in rows]
    assert scores == sorted(scores, reverse=True)
    assert all(row["label"] == labels[int(row["row"])] for row in rows)
    assert {int(row["row"]): row["suggested"] for row in rows if row["suspect"] == "1"} == RIGHT
    assert [row["candidate"] for row in rows] == ["0"] * 100  # all others are surely right
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


@pytest.mark.slow
def test_a_run_is_judged_by_its_own_network_and_pictures(folder, cli):
    rng, labels = np.random.default_rng(0), np.arange(120) // 20
    images = rng.integers(0, 200, (6, 1, 5, 5))[labels] + rng.integers(0, 40, (120, 1, 5, 5))
    labels[3] = 5
    for split in ("train", "test"):
        np.savez(f"{split}.npz", images=images.astype(np.uint8), labels=labels)
    config, settings = canonical("collapsed") / "run.toml", [f"data.root={folder}", "train.steps=1"]
    cli("train", config, "--out", "run", *(f"--set={setting}" for setting in settings))
    words = cli("suspects", "run", "--split", "train", "--html", "p.html", "--csv", "all.csv").text
    assert "1 suspect" in words
    assert "was trained on these labels" in words
    assert (folder / "all.csv").read_text().splitlines()[1].startswith("3,")
    assert "data:image/png" in (folder / "p.html").read_text()


def test_candidates_follow_the_suspects_everywhere(cli, folder):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(20), 40)
    z = rng.normal(size=(20, 8))[labels] + 0.75 * rng.normal(size=(800, 8))
    wrong = rng.permutation(800)[:80]
    labels[wrong] = (labels[wrong] + rng.integers(1, 20, 80)) % 20
    np.savez("z.npz", embeddings=z, labels=labels)
    words = ["suspects", "z.npz", "-n", "200", "--csv", "all.csv", "--html", "page.html"]
    lines = cli(*words).out.splitlines()
    kinds = [line.split()[-1] for line in lines if " of 10 " in line]
    with open("all.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    few = sum(row["candidate"] == "1" for row in rows)
    assert few > 5
    assert kinds == ["suspect"] * (len(kinds) - few) + ["candidate"] * few
    marks = [row["suspect"] + row["candidate"] for row in rows]
    assert marks == ["10"] * (len(kinds) - few) + ["01"] * few + ["00"] * (800 - len(kinds))
    assert f"{few} candidate; about " in " ".join(lines)
    assert (folder / "page.html").read_text().count(">candidate<") == few


def test_of_more_rows_than_max_rows_a_sample_is_judged_and_terminal_and_page_say_so(
    labels, cli, folder
):
    words = "on a sample of 40 of 100 rows"
    said = cli("suspects", "z.npz", "--max-rows", "40", "--csv", "s.csv", "--html", "page.html")
    assert words in " ".join(said.out.split())
    assert words in (folder / "page.html").read_text()
    assert len((folder / "s.csv").read_text().splitlines()) == 41
