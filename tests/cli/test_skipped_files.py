"""Files that are no samples: said on the terminal, in `summary.json` and on the page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from uncollapse.cli import app
from uncollapse.cli.errors import run
from uncollapse.data import LoadReport
from uncollapse.training import Run

pytestmark = pytest.mark.slow

CONFIG = """
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


@pytest.fixture
def pets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two splits; in train two cut images, a photograph of a kind we do not read, and litter."""
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
    cats = tmp_path / "pets" / "train" / "cat"
    for name in ("3.png", "4.png"):
        (cats / name).write_bytes((cats / name).read_bytes()[:40])
    (cats / "<b>5.heic").write_bytes(b"x")
    (cats / "Thumbs.db").write_bytes(b"x")
    (tmp_path / "run.toml").write_text(CONFIG, encoding="utf-8")
    return tmp_path


def test_skipped_images_are_said_everywhere(pets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(app, ["train", "run.toml", "--out", "run"]) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert "warning: train: 2 unreadable (cat/3.png" in told
    assert "1 ignored (cat/<b>5.heic)" in told
    assert "Thumbs.db" not in told
    assert "warning: test" not in told

    skipped = Run.open("run").summary["skipped"]
    assert skipped.keys() == {"train"}
    assert skipped["train"]["unreadable"]["count"] == 2
    assert skipped["train"]["unreadable"]["first"][1].startswith("cat/4.png")
    assert skipped["train"]["ignored"] == {"count": 1, "first": ["cat/<b>5.heic"]}

    page = (pets / "run" / "report.html").read_text(encoding="utf-8")
    assert "Left out of train: 2 unreadable (cat/3.png" in page
    assert "1 ignored (cat/&lt;b&gt;5.heic)." in page

    assert run(app, ["evaluate", "run", "--split", "train"]) == 0
    assert "warning: train: 2 unreadable (cat/3.png" in capsys.readouterr().err
    assert run(app, ["embed", "run", "--split", "train", "--out", "z.npz"]) == 0
    assert "warning: train: 2 unreadable (cat/3.png" in capsys.readouterr().err
    assert run(app, ["evaluate", "run"]) == 0
    assert capsys.readouterr().err == ""


def test_what_a_system_leaves_behind_is_not_skipped() -> None:
    ignored = ("a/.DS_Store", "a/desktop.ini", "b/Thumbs.db", "b/notes.txt", "._c.jpg")
    report = LoadReport(missing=("d.jpg",), ignored=ignored, converted={"grey": ("e.jpg",)})
    assert report.skipped == {"missing": ("d.jpg",), "ignored": ("b/notes.txt",)}
    assert report.skipped_summary() == "1 missing (d.jpg); 1 ignored (b/notes.txt)"
    assert LoadReport(converted={"grey": ("e.jpg",)}).skipped_summary() == ""
