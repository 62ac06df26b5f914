"""`diagnose` of a run folder, and of what `embed` wrote: the verdict of `train`, and pictures."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from uncollapse.cli import app
from uncollapse.cli.errors import run
from uncollapse.data.sources import open_source
from uncollapse.training import Run
from uncollapse.training.measures import write_measures

pytestmark = pytest.mark.slow

# Hard mining of labels that mean nothing: the embedding shrinks.
CONFIG = """
[data]
name = "arrays"
root = "{root}"
eval_splits = ["test"]
[model]
backbone = "mlp"
dim = 8
hidden = [32]
[batch]
p = 4
k = 20
[mining]
positives = "hard"
negatives = "hard"
[loss]
margin = 0.2
[optimizer]
lr = 0.01
[train]
steps = 60
evaluate_every = 60
"""
PETS = """
[data]
name = "folder"
root = "pets"
size = 8
channels = 1
[model]
backbone = "mlp"
hidden = [8]
dim = 4
[batch]
p = 2
k = 2
[train]
steps = 2
"""


@pytest.fixture(scope="module")
def shrunk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("shrunk")
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 4
    # In their first order R@1 is 33.5 on some processors: by chance more than noise should have.
    labels[204:] = np.random.default_rng(0).permutation(labels[204:])
    np.savez(
        home / "noise.npz",
        features=rng.normal(size=(400, 16)).astype(np.float32),
        labels=labels,
        split=np.repeat(["train", "test"], 200),
    )
    (home / "run.toml").write_text(CONFIG.format(root=home / "noise.npz"))
    assert run(app, ["train", str(home / "run.toml"), "--out", str(home / "run")]) == 0
    after = Run.open(home / "run").measures().after
    assert after is not None
    assert after.splits["test"].health.verdict == "shrinking"
    return home / "run"


def say(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> str:
    capsys.readouterr()
    assert run(app, [str(word) for word in words]) == code
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return said.out + said.err


@pytest.mark.parametrize("ending", ["npz", "safetensors", "parquet"])
def test_embed_and_diagnose_say_what_train_says(
    shrunk: Path, tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / f"z.{ending}"
    said = say(capsys, "embed", shrunk, "--out", out)
    assert "; reference: diameter 1.85 before training, of 200 rows of test" in said
    said = say(capsys, "diagnose", out, "--html", tmp_path / "page.html")
    assert said.startswith("shrinking\n")
    assert "reference: diameter 1.85 before training, of 200 rows of test" in said
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "reference: diameter 1.85 before training, of 200 rows of test" in page
    found = open_source(out)
    assert found.origin is not None
    assert (found.origin.run, found.origin.step, found.origin.split) == ("run", 60, "test")
    assert found.names is not None
    assert found.names[3] == "3 (3)"


def test_a_reference_given_comes_before_that_of_the_file(
    shrunk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    say(capsys, "embed", shrunk, "--out", tmp_path / "z.npz")
    for place in (shrunk, tmp_path / "z.npz"):
        said = say(capsys, "diagnose", place, "--reference", "0.1")
        assert said.startswith("uninformative\n")  # its labels are noise; not shrinking
        assert "reference scale" not in said
        assert "before training" not in said


def test_a_run_folder_needs_neither_network_nor_dataset(
    shrunk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(shrunk, tmp_path / "alone")
    shutil.rmtree(tmp_path / "alone" / "checkpoints")
    text = (tmp_path / "alone" / "config.toml").read_text()
    gone = text.replace(str(shrunk.parent / "noise.npz"), "gone.npz")
    assert gone != text
    (tmp_path / "alone" / "config.toml").write_text(gone)
    said = say(capsys, "diagnose", tmp_path / "alone", "--html", tmp_path / "page.html")
    assert said.startswith("shrinking\n")
    assert "reference: diameter 1.85 before training, of 200 rows of test" in said
    assert "by label, on all 200 rows of test: R@1" in said
    assert "<h1>alone</h1>" in (tmp_path / "page.html").read_text(encoding="utf-8")
    health = Run.open(shrunk).measures().after.splits["test"].health  # type: ignore[union-attr]
    assert all(reason in said for reason in health.reasons)


def test_a_split_that_was_not_measured_has_the_scale_of_the_first(
    shrunk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = say(capsys, "embed", shrunk, "--split", "train", "--out", tmp_path / "z.npz")
    assert "of 200 rows of test" in said
    found = open_source(tmp_path / "z.npz")
    assert found.origin is not None
    assert found.origin.split == "train"


def test_a_run_without_measures_is_embedded_and_said_to_have_no_scale(
    shrunk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, out = tmp_path / "run", tmp_path / "z.npz"
    shutil.copytree(shrunk, place)
    (place / "measures.json").unlink()
    said = say(capsys, "embed", place, "--out", out)
    assert "has no measures.json" in said
    assert "The file holds no scale to compare with" in said
    said = say(capsys, "diagnose", out)
    assert said.startswith("uninformative\n")  # its labels are noise; of its scale nothing is said
    assert "reference" not in said
    assert "shrinking" not in said
    assert "uncollapse evaluate RUN --measure" in say(capsys, "diagnose", place, code=2)


def test_a_run_that_cannot_be_diagnosed_is_a_sentence(
    shrunk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "run"
    shutil.copytree(shrunk, place)
    measures = Run.open(place).measures()
    write_measures(place, replace(measures, after=None))
    assert "it has not ended" in say(capsys, "diagnose", place, code=2)
    write_measures(place, measures)
    rows = place / "embeddings-after.safetensors"
    rows.write_bytes(rows.read_bytes()[:-4])
    assert "embeddings-after.safetensors is damaged" in say(capsys, "diagnose", place, code=2)
    assert "a run directory" in say(capsys, "diagnose", tmp_path, code=2)


@pytest.mark.parametrize("option", ["--labels", "--label", "--images", "--ignore"])
def test_options_of_files_are_refused_beside_a_run(
    shrunk: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = say(capsys, "diagnose", shrunk, option, "x", code=2)
    assert f"{option} is only for files of embeddings" in told


@pytest.fixture
def pets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run on a folder of images that are decoded into a cache, and its embeddings."""
    monkeypatch.setenv("UNCOLLAPSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            folder = tmp_path / "pets" / split / name
            folder.mkdir(parents=True)
            for i in range(5):
                pixels = rng.integers(0, 256, (8, 8), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
    (tmp_path / "run.toml").write_text(PETS, encoding="utf-8")
    assert run(app, ["train", "run.toml", "--out", "run"]) == 0
    return tmp_path


def test_images_work_on_the_files_of_embed(
    pets: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for ending in ("npz", "safetensors", "parquet"):
        say(capsys, "embed", "run", "--out", f"z.{ending}")
        names = open_source(f"z.{ending}").names
        assert names is not None
        assert names[0] == str(pets / "pets/test/cat/0.png")
    (pets / "elsewhere").mkdir()
    shutil.copytree(pets / "pets", pets / "elsewhere" / "moved")
    monkeypatch.chdir(pets / "elsewhere")
    for folder in ("../pets", "..", pets / "pets", "moved", "moved/test"):
        for ending in ("npz", "safetensors", "parquet"):
            page = pets / "page.html"
            page.unlink(missing_ok=True)
            say(capsys, "diagnose", f"../z.{ending}", "--images", folder, "--html", page)
            assert "data:image/png" in page.read_text(encoding="utf-8")


def test_own_images_are_shown_and_have_no_scale(
    pets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = say(capsys, "embed", "run", "--images", "pets/test", "--out", "z.npz")
    assert "reference" not in said
    said = say(capsys, "diagnose", "z.npz", "--images", "pets", "--html", "page.html")
    assert "(no reference: " in said
    assert "data:image/png" in (pets / "page.html").read_text(encoding="utf-8")


def test_search_names_the_files_of_a_split_also_from_the_cache(
    pets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = say(capsys, "search", "run", "0", "-k", "2")
    assert "pets/test/" in "".join(shown.split()).replace("│", "")


def test_the_command_loads_no_library_before_it_needs_it() -> None:
    heavy = ["numba", "pandas", "scipy.optimize", "scipy.sparse", "scipy.stats", "sklearn"]
    code = f"import sys, uncollapse.report; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
