"""`uncollapse diagnose`: files of any origin and runs, a verdict, a page, an exit code."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from support.errors import refused
from support.runs import canonical, copy_of
from uncollapse.data.sources import Origin, Source, StartScale, open_source, write_embeddings
from uncollapse.health import measure
from uncollapse.training import Run
from uncollapse.training.measures import write_measures

LABELS = np.repeat(np.arange(5), 12)
OF_FILES = ("--labels", "--images", "--features", "--id")
REFERENCE = "reference: diameter 0.561 before training, of 60 rows of test"


@pytest.fixture
def rows(folder):
    """Five classes of a point each, in z.npz; the rows. Others are healthy, or all one point."""
    rng = np.random.default_rng(0)
    centres, noise = rng.normal(size=(5, 6))[LABELS], rng.normal(size=(60, 6))
    z = centres + 1e-3 * noise
    np.savez("z.npz", embeddings=z, labels=LABELS)
    np.savez("healthy.npz", embeddings=centres + noise, labels=LABELS)
    np.savez("point.npz", embeddings=np.ones((60, 6)), labels=LABELS)
    return z


def test_a_verdict_is_printed_and_the_page_written(rows, cli, folder):
    words = ["--html", "out/page.html", "--max-rows", "40", "--reference", "1e6"]
    diagnosis = cli("diagnose", "z.npz", *words)
    assert diagnosis.out.startswith("network-collapse\n")  # by the reference
    assert cli("diagnose", "z.npz").out.startswith("class-collapse\n")
    assert "wrote out/page.html" in diagnosis.out
    assert "by label, on a sample of 40 of 60 rows: R@1 " in diagnosis.text
    assert "<h1>z.npz</h1>" in (folder / "out/page.html").read_text(encoding="utf-8")


def test_labels_fine_labels_and_pictures_come_from_files_beside(rows, cli, folder):
    np.save("z.npy", rows)
    np.save("y.npy", LABELS)
    np.save("pictures.npy", np.zeros((60, 8, 8), np.uint8))
    fine = LABELS * 2 + np.arange(60) % 2
    (folder / "fine.csv").write_text("a,b\n" + "\n".join(f"0,{value}" for value in fine))
    words = ["diagnose", "z.npy", "--labels", "y.npy", "--labels", "fine.csv:b"]
    said = cli(*words, "--images", "pictures.npy", "--html", "page.html").text
    assert "by fine label, on all 60 rows: R@1" in said
    assert "data:image/png" in (folder / "page.html").read_text(encoding="utf-8")
    np.savez("both.npz", embeddings=rows, kind=LABELS, part=fine)
    text = cli("diagnose", "both.npz", "--label", "kind", "--labels", "part").text
    assert "by fine label" in text
    assert said.startswith(text)


def test_columns_of_a_table_are_named_on_the_command_line(rows, cli, folder):
    lines = ["product_id,category," + ",".join(f"f{i}" for i in range(6))]
    for i, row in enumerate(rows):
        lines.append(f"{7_000_000 + i},kind {LABELS[i]}," + ",".join(map(str, row)))
    (folder / "z.csv").write_text("\n".join(lines))
    assert "'product_id'" in cli("diagnose", "z.csv", "--label", "category", code=2).err
    chosen = (["--features", "f*"], ["--id", "product_id"], ["--features", "!*_id"])
    said = {cli("diagnose", "z.csv", "--labels", "category", *words).out for words in chosen}
    assert len(said) == 1
    assert said.pop().startswith("class-collapse\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.npz"], "no such file"),
        (["z.txt"], "a file ending in"),
        (["z.npz", "--images", "."], "the file has no names"),
        (["z.npz", "z.npz", "--html", "page.html"], "--html is only for one file"),
        (["z.npz", "--fail-on", "conee"], "did you mean 'cone'"),
        (["none.npz", "--fail-on", "healthy"], "--fail-on"),
        (["none.npz", "--fail-on", ""], "--fail-on"),
        (["none.npz", "--fail-on", "cone,,any"], "--fail-on"),
        (["z.npz", *["--labels", "labels"] * 3], "--labels"),
        *(([".", option, "x"], f"{option} is only for files") for option in OF_FILES),
    ],
)
def test_mistakes_are_one_line(rows, cli, words, message):
    assert message in cli("diagnose", *words, code=2).err


def test_an_odd_note_in_a_file_is_a_warning_and_the_file_is_diagnosed(rows, cli):
    note = np.array('{"format": 1, "origin": {"run": "\\u001b[2J", "step": -1}}')
    np.savez("z.npz", embeddings=rows, labels=LABELS, uncollapse=note)
    diagnosis = cli("diagnose", "z.npz")
    assert diagnosis.out.startswith("class-collapse\n")
    assert diagnosis.err.startswith("warning: ")
    assert "\x1b[2J" not in diagnosis.err


def test_a_cone_is_said_of_a_file_and_not_of_rows_whose_run_compares_by_distance(folder, cli):
    rng, labels = np.random.default_rng(0), np.arange(200) % 5
    z = rng.normal(size=(5, 8))[labels] + 0.5 * rng.normal(size=(200, 8)) + 40
    for cosine, verdict in ((None, "cone"), (True, "cone"), (False, "healthy")):
        write_embeddings(Source(z, labels, origin=Origin("a", 3, cosine=cosine)), "z.npz")
        said = cli("diagnose", "z.npz").out
        assert said.startswith(f"{verdict}\n")
        assert ("int8 index" in said) == (verdict == "cone")


def test_rows_are_judged_by_the_scale_that_their_file_holds(folder, cli, rows):
    z = np.load("healthy.npz")["embeddings"]
    start = StartScale(1e6, None, None, "test", 60)
    write_embeddings(Source(z, LABELS, origin=Origin("a", 3, start=start)), "z.npz")
    assert cli("diagnose", "z.npz").out.startswith("network-collapse\n")
    assert cli("diagnose", "z.npz", "--reference", "10").out.startswith("healthy\n")


@pytest.mark.parametrize("cosine", [0.996, 0.9995])
def test_text_embeddings_of_one_direction_with_labels_of_noise_are_not_healthy(cosine):
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(300, 384)) / np.sqrt(384)
    z = np.eye(384)[0] + np.sqrt(1 / cosine - 1) * noise
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    health = measure(z.astype(np.float32), rng.integers(0, 15, 300))
    assert health.verdict == "cone"
    assert any("shuffled labels give" in reason for reason in health.reasons)


# --fail-on


@pytest.mark.parametrize(
    ("refused", "code"),
    [("cone, network-collapse", 1), ("any", 1), ("cone,class-collapse", 0), (None, 0)],
)
def test_the_exit_code_says_whether_the_verdict_is_refused(rows, cli, refused, code):
    options = [] if refused is None else ["--fail-on", refused]
    said = cli("diagnose", "point.npz", *options, code=code)
    assert said.out.startswith("network-collapse")  # the diagnosis is printed all the same
    line = "failed: point.npz is judged network-collapse, which --fail-on refuses\n"
    assert said.err == (line if code else "")


def test_one_bad_file_among_several_fails_and_the_others_are_diagnosed(rows, cli):
    said = cli("diagnose", "point.npz", "healthy.npz", "--fail-on", "any", code=1)
    assert "point.npz:\nnetwork-collapse" in said.out
    assert "healthy.npz:\nhealthy" in said.out
    assert said.err.count("failed:") == 1


# Runs, and what `embed` wrote of them.


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["npz", "safetensors", "parquet"])
def test_embed_and_diagnose_say_what_train_says(folder, cli, ending):
    run, out = canonical("collapsed") / "run", f"z.{ending}"
    assert REFERENCE in cli("embed", run, "--out", out).text
    said = cli("diagnose", out, "--html", "page.html")
    assert said.out.startswith("network-collapse\n")
    assert REFERENCE in said.text
    assert REFERENCE in (folder / "page.html").read_text(encoding="utf-8")
    source = open_source(out)
    assert (source.origin.run, source.origin.step, source.origin.split) == ("run", 60, "test")
    assert source.names[3] == "3 (3)"
    assert "before training" not in cli("diagnose", out, "--reference", "1.0").text


@pytest.mark.slow
def test_a_run_folder_needs_neither_network_nor_dataset(folder, cli):
    run = copy_of("collapsed", folder) / "run"
    shutil.rmtree(run / "checkpoints")
    text = (run / "config.toml").read_text()
    gone = text.replace(str(canonical("collapsed")), "gone")
    assert gone != text
    (run / "config.toml").write_text(gone)
    assert "before training" not in cli("diagnose", run, "--reference", "1e6").text
    said = cli("diagnose", run, "--html", "page.html").text
    assert said.startswith("network-collapse ")
    assert REFERENCE in said
    assert "by label, on all 60 rows of test: R@1" in said
    assert "<h1>run</h1>" in (folder / "page.html").read_text(encoding="utf-8")
    health = Run.open(run).measures().after.splits["test"].health
    assert all(" ".join(reason.split()) in said for reason in health.reasons)  # \xa0 is a space


@pytest.mark.slow
def test_without_measures_rows_are_embedded_and_have_no_scale(folder, cli):
    run = copy_of("collapsed", folder) / "run"
    said = cli("embed", run, "--split", "train", "--out", "z.npz").text
    assert "of 60 rows of test" in said  # that of the first split that was measured
    assert open_source("z.npz").origin.split == "train"
    (run / "measures.json").unlink()
    said = cli("embed", run, "--out", "z.npz").text
    assert "has no measures.json" in said
    assert "The file holds no scale to compare with" in said
    assert "reference: " not in cli("diagnose", "z.npz").text.replace("no reference", "")
    assert "uncollapse report RUN --measure" in cli("diagnose", run, code=2).err


@pytest.mark.slow
def test_a_run_that_cannot_be_diagnosed_is_a_sentence(folder, cli):
    run = copy_of("collapsed", folder) / "run"
    measures = Run.open(run).measures()
    write_measures(run, replace(measures, after=None))
    assert "it has not ended" in cli("diagnose", run, code=2).err
    write_measures(run, measures)
    rows = run / "embeddings-after.safetensors"
    rows.write_bytes(rows.read_bytes()[:-4])
    assert "embeddings-after.safetensors is damaged" in cli("diagnose", run, code=2).err
    assert "a run directory" in cli("diagnose", folder, code=2).err


# Pictures, by the names in a file.


@pytest.mark.slow
def test_pictures_of_an_embedded_split_are_found_wherever_they_are_now(pets, cli, monkeypatch):
    for ending in ("npz", "safetensors", "parquet"):
        cli("embed", "run", "--out", f"z.{ending}")
        assert open_source(f"z.{ending}").names[0] == str(pets / "pets/test/cat/0.png")
    shutil.copytree("pets", "elsewhere/moved")
    monkeypatch.chdir(pets / "elsewhere")
    for place in ("..", pets / "pets", "moved", "moved/test"):
        cli("diagnose", "../z.npz", "--images", place, "--html", "page.html", "--tsne")
        page = (pets / "elsewhere/page.html").read_text(encoding="utf-8")
        assert "data:image/png" in page
        assert "t-SNE of 4 dimensions" in page
    monkeypatch.chdir(pets)
    said = cli("embed", "run", "--images", "pets/test", "--out", "z.npz").text
    assert "reference" not in said  # own images have no scale
    said = cli("diagnose", "z.npz", "--images", "pets", "--html", "page.html").text
    assert "(we cannot tell whether this is small: " in said
    assert "pets/test/" in "".join(cli("search", "run", "0", "-k", "2").out.split())


@pytest.fixture
def shop(tmp_path):
    for name in ("shop/cup/0.png", "shop/plate/0.png", "secret.png"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (2, 2)).save(path)
    return tmp_path / "shop"


def pictures(place, names):
    source = Source(np.zeros((1, 2)), names=None if names is None else np.array(names))
    return source.find_pictures(place)


@pytest.mark.parametrize("before", ["", "shop/", "/home/other/shop/", "../up/shop/", "./"])
def test_what_stands_before_the_names_does_not_matter(shop, before):
    files = pictures(shop, [f"{before}cup/0.png", f"{before}plate/0.png"])
    assert files == [shop / "cup/0.png", shop / "plate/0.png"]


@pytest.mark.parametrize(
    ("place", "names", "lost"),
    [
        (".", ["cup/0.png", "{shop}/../secret.png"], "secret.png"),
        (".", ["cup/0.png", "cup/../../secret.png"], "secret.png"),
        ("cup", ["spoon/0.png", "fork/0.png"], "spoon"),  # two names never become one file
        (".", ["shop/cup/0.png", "shop/cup/1.png"], "shop/cup/1.png"),
    ],
    ids=["outside", "up", "one file", "missing"],
)
def test_a_name_without_its_own_picture_below_the_folder_is_told(shop, place, names, lost):
    with refused("--images") as error:
        pictures(shop / place, [name.format(shop=shop) for name in names])
    assert lost in str(error.value)


def test_a_damaged_array_of_pictures_is_refused(tmp_path):
    for content in (b"", b"junk"):
        (tmp_path / "x.npy").write_bytes(content)
        with refused("--images"):
            pictures(tmp_path / "x.npy", None)
