"""`uncollapse diagnose`: files of any origin, a verdict, a page."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from uncollapse.cli import app
from uncollapse.cli.errors import run
from uncollapse.data.sources import Origin, Source, write_embeddings


@pytest.fixture
def arrays() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(5), 12)
    return rng.normal(size=(5, 6))[labels] + 1e-3 * rng.normal(size=(60, 6)), labels


def test_a_verdict_is_printed_and_the_page_written(
    arrays: tuple[np.ndarray, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    z, labels = arrays
    np.savez(tmp_path / "z.npz", embeddings=z, labels=labels)
    page = tmp_path / "out" / "page.html"
    assert run(app, ["diagnose", str(tmp_path / "z.npz"), "--html", str(page), "--tsne"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("class-collapse\n")
    assert f"wrote {page}" in said
    text = page.read_text(encoding="utf-8")
    assert "t-SNE of 6 dimensions" in text
    assert "<h1>z.npz</h1>" in text


def test_labels_fine_labels_and_images_come_from_files_beside(
    arrays: tuple[np.ndarray, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    z, labels = arrays
    np.save(tmp_path / "z.npy", z)
    np.save(tmp_path / "y.npy", labels)
    np.save(tmp_path / "fine.npy", labels * 2 + np.arange(60) % 2)
    np.save(tmp_path / "pictures.npy", np.zeros((60, 8, 8), np.uint8))
    words = ["diagnose", str(tmp_path / "z.npy"), "--labels", str(tmp_path / "y.npy")]
    words += ["--fine-labels", str(tmp_path / "fine.npy")]
    words += ["--images", str(tmp_path / "pictures.npy"), "--html", str(tmp_path / "page.html")]
    assert run(app, words) == 0
    assert "by fine label, on all 60 rows: R@1" in capsys.readouterr().out
    assert "data:image/png" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_names_in_the_file_find_pictures_in_a_folder(
    arrays: tuple[np.ndarray, np.ndarray], tmp_path: Path
):
    z, labels = arrays
    names = [f"{i}.png" for i in range(60)]
    for name in names:
        Image.new("L", (4, 4)).save(tmp_path / name)
    np.savez(tmp_path / "z.npz", embeddings=z, labels=labels, names=np.array(names))
    words = ["diagnose", str(tmp_path / "z.npz"), "--images", str(tmp_path)]
    assert run(app, [*words, "--html", str(tmp_path / "page.html")]) == 0
    assert "data:image/png" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_reference_decides_about_the_scale(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    np.save(tmp_path / "z.npy", 1e-6 * np.random.default_rng(0).normal(size=(30, 4)))
    assert run(app, ["diagnose", str(tmp_path / "z.npy"), "--reference", "4.0"]) == 0
    assert capsys.readouterr().out.startswith("network-collapse")


def test_columns_of_a_table_are_named_on_the_command_line(
    arrays: tuple[np.ndarray, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    z, labels = arrays
    lines = ["product_id,category," + ",".join(f"f{i}" for i in range(6))]
    for i, row in enumerate(z):
        lines.append(f"{7_000_000 + i},kind {labels[i]}," + ",".join(map(str, row)))
    path = tmp_path / "z.csv"
    path.write_text("\n".join(lines))
    assert run(app, ["diagnose", str(path), "--label", "category"]) == 2
    told = capsys.readouterr().err
    assert "column 'product_id' looks like an id" in told
    assert "--features 'f*'" in told
    chosen = (["--features", "f*"], ["--id", "product_id"], ["--ignore", "*_id"])
    said = []
    for words in chosen:
        assert run(app, ["diagnose", str(path), "--label", "category", *words]) == 0
        said.append(capsys.readouterr().out)
    assert said[0].startswith("class-collapse\n")
    assert said == [said[0]] * 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.npz"], "no such file"),
        (["z.txt"], "a file ending in"),
        (["z.npy", "--images", "."], "the file has no names"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    np.save("z.npy", np.eye(5))
    assert run(app, ["diagnose", *words]) == 2
    assert message in capsys.readouterr().err


def test_the_limit_of_the_command_is_that_of_the_function() -> None:
    from inspect import signature

    from uncollapse.cli.diagnose import command
    from uncollapse.report import diagnose, diagnose_run

    limits = {
        signature(f).parameters["max_rows"].default for f in (command, diagnose, diagnose_run)
    }
    assert limits == {30_000}


def test_a_limit_is_printed_beside_the_figure(
    arrays: tuple[np.ndarray, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    z, labels = arrays
    np.savez(tmp_path / "z.npz", embeddings=z, labels=labels)
    assert run(app, ["diagnose", str(tmp_path / "z.npz"), "--max-rows", "40"]) == 0
    assert "by label, on 40 of 60 rows, the limit: R@1 " in capsys.readouterr().out


def test_an_odd_note_in_a_file_is_a_warning_and_the_file_is_diagnosed(
    arrays: tuple[np.ndarray, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    z, labels = arrays
    note = np.array('{"format": 1, "origin": {"run": "\\u001b[2J", "step": -1}}')
    np.savez(tmp_path / "z.npz", embeddings=z, labels=labels, uncollapse=note)
    assert run(app, ["diagnose", str(tmp_path / "z.npz")]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("class-collapse\n")
    assert "warning: " in said.err
    assert "origin.step" in said.err
    assert "\x1b[2J" not in said.err


def test_a_cone_is_said_of_a_file_and_not_of_rows_whose_run_compares_by_distance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 5
    z = rng.normal(size=(5, 8))[labels] + 0.5 * rng.normal(size=(200, 8)) + 40
    for cosine, verdict in ((None, "cone"), (True, "cone"), (False, "healthy")):
        origin = Origin("a", 3, cosine=cosine)
        file = write_embeddings(Source(z, labels, origin=origin), tmp_path / f"{cosine}.npz")
        assert run(app, ["diagnose", str(file)]) == 0
        said = capsys.readouterr().out
        assert said.startswith(f"{verdict}\n")
        assert ("int8 index" in said) == (verdict == "cone")


@pytest.mark.slow
def test_a_small_file_loads_no_package_that_it_does_not_need(
    arrays: tuple[np.ndarray, np.ndarray], tmp_path: Path
):
    z, labels = arrays
    np.savez(tmp_path / "z.npz", embeddings=z, labels=labels)
    code = f"""
import sys
from uncollapse.cli import app
from uncollapse.cli.errors import run
assert run(app, ["diagnose", {str(tmp_path / "z.npz")!r}]) == 0
heavy = "sklearn", "scipy.stats", "scipy.cluster", "numba", "pandas", "uncollapse.training"
print("loaded:", *(name for name in heavy if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded:"


@pytest.mark.parametrize("cosine", [0.996, 0.9995])
def test_text_embeddings_of_one_direction_with_labels_of_noise_are_not_healthy(
    cosine: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(600, 384)) / np.sqrt(384)
    z = np.eye(384)[0] + np.sqrt(1 / cosine - 1) * noise
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    assert abs((z @ z.T)[np.triu_indices(600, 1)].mean() - cosine) < 1e-4
    np.savez(tmp_path / "z.npz", embeddings=z.astype(np.float32), labels=rng.integers(0, 30, 600))
    assert run(app, ["diagnose", str(tmp_path / "z.npz")]) == 0
    said = capsys.readouterr().out
    assert said.startswith("cone\n")
    assert "shuffled labels give" in said
