"""`uncollapse report`: the page lands where it is asked for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from uncollapse.cli import app
from uncollapse.cli.errors import run
from uncollapse.training import parse_config, train


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = {
        "data": {"name": "digits"},
        "model": {"backbone": "linear", "dim": 3},
        "batch": {"p": 3, "k": 3},
        "train": {"steps": 2},
        "evaluate": {"max_samples": 40},
    }
    out = tmp_path_factory.mktemp("report") / "run"
    train(parse_config(settings), out)
    return out


def test_one_run_gets_its_page_inside(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert run(app, ["report", str(folder)]) == 0
    assert f"wrote {folder / 'report.html'}" in capsys.readouterr().out
    assert "Run run" in (folder / "report.html").read_text(encoding="utf-8")


def test_several_runs_get_one_page_where_asked(folder: Path, tmp_path: Path):
    page, twin = tmp_path / "new" / "both.html", tmp_path / "run"
    shutil.copytree(folder, twin)
    assert run(app, ["report", str(folder), str(twin), "--out", str(page)]) == 0
    assert "2 runs" in page.read_text(encoding="utf-8")


def test_a_folder_that_is_no_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run(app, ["report", str(tmp_path)]) == 2
    assert "no config.toml in it" in capsys.readouterr().err
