"""`diagnose --fail-on`: exit code 1 on the verdicts named, for a file, several, or a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from uncollapse._base.check import InputError
from uncollapse.cli import app
from uncollapse.cli.diagnose import refused_verdicts
from uncollapse.cli.errors import run
from uncollapse.health import VERDICTS


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A healthy embedding, and one that is a point."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 20)
    healthy = rng.normal(size=(6, 16))[labels] + rng.normal(size=(120, 16))
    np.savez(tmp_path / "healthy.npz", embeddings=healthy, labels=labels)
    np.savez(tmp_path / "point.npz", embeddings=np.ones((120, 16)), labels=labels)
    return tmp_path


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        ("network-collapse", 1),
        ("cone, network-collapse", 1),
        ("any", 1),
        ("cone,class-collapse", 0),
    ],
)
def test_the_exit_code_says_whether_the_verdict_is_refused(
    files: Path, refused: str, code: int, capsys: pytest.CaptureFixture[str]
):
    assert run(app, ["diagnose", "point.npz", "--fail-on", refused]) == code
    told = capsys.readouterr()
    assert told.out.startswith("network-collapse")  # the diagnosis is printed all the same
    line = "failed: point.npz is judged network-collapse, which --fail-on refuses\n"
    assert told.err == (line if code else "")


def test_a_healthy_embedding_passes_any(files: Path):
    assert run(app, ["diagnose", "healthy.npz", "--fail-on", "any"]) == 0


def test_one_bad_file_among_several_fails_and_the_others_are_diagnosed(
    files: Path, capsys: pytest.CaptureFixture[str]
):
    words = ["diagnose", "point.npz", "healthy.npz", "--fail-on", "network-collapse"]
    assert run(app, words) == 1
    told = capsys.readouterr()
    assert "point.npz:\nnetwork-collapse" in told.out
    assert "healthy.npz:\nhealthy" in told.out
    assert told.err.count("failed:") == 1


def test_several_files_have_no_page_and_no_labels_of_their_own(
    files: Path, capsys: pytest.CaptureFixture[str]
):
    assert run(app, ["diagnose", "point.npz", "healthy.npz", "--html", "page.html"]) == 2
    assert "--html is only for one file" in capsys.readouterr().err


def test_without_the_option_a_collapse_is_no_failure(files: Path):
    assert run(app, ["diagnose", "point.npz"]) == 0


@pytest.mark.parametrize("word", ["conee", "healthy", "", "cone,,any"])
def test_a_word_that_is_no_verdict_is_refused_before_anything_is_read(
    word: str, capsys: pytest.CaptureFixture[str]
):
    assert run(app, ["diagnose", "none.npz", "--fail-on", word]) == 2
    said = capsys.readouterr().err
    assert "--fail-on: expected any, or one or several of shrinking, network-collapse" in said


def test_the_nearest_verdict_is_suggested():
    with pytest.raises(InputError, match=r"'conee' \(did you mean 'cone'\?\)"):
        refused_verdicts("conee")


def test_any_is_every_verdict_but_healthy():
    assert refused_verdicts("any") == set(VERDICTS) - {"healthy"}
    assert refused_verdicts(None) == frozenset()
