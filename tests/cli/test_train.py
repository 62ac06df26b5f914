"""`uncollapse train`: a run folder with its page, resumed, interrupted, with keys overridden."""

import json
import os
import signal

import pytest

from support.runs import copy_of
from uncollapse.data import LoadReport
from uncollapse.training import Run
from uncollapse.training.session import Session

pytestmark = pytest.mark.slow


def test_train_leaves_a_run_directory_with_a_report_and_resumes_it(plain, folder, cli):
    assert json.loads((plain / "summary.json").read_text())["status"] == "finished"
    assert "<html" in (plain / "report.html").read_text()
    home = copy_of("plain", folder)
    words = ["train", home / "run.toml", "--out", home / "run"]
    assert "--resume" in cli(*words, code=2).err
    assert "finished at step 12" in cli(*words, "--resume").text


def test_an_interrupted_training_exits_with_130(plain, folder, cli, monkeypatch):
    advance = Session.advance

    def interrupted(self):
        os.kill(os.getpid(), signal.SIGINT)
        return advance(self)

    monkeypatch.setattr(Session, "advance", interrupted)
    said = cli("train", plain.parent / "run.toml", "--out", "run", code=130)
    assert "step 1 is saved; go on with --resume" in said.err
    assert "interrupted at step 1" in said.out


def test_set_overrides_a_key_and_refuses_an_unknown_one(plain, folder, cli):
    words = ["train", plain.parent / "run.toml", "--out", "run"]
    assert "did you mean 'mining'" in cli(*words, "--set", "minning.positives=easy", code=2).err
    cli(*words, "--set", "train.steps=1", "--set", "mining.positives=hard")
    assert 'positives = "hard"' in (folder / "run" / "config.toml").read_text()


def test_skipped_images_are_said_everywhere(pets, cli):
    trained = (pets / "trained.txt").read_text()
    assert "warning: train: 2 unreadable (cat/3.png" in trained
    assert "1 ignored (cat/<b>5.heic)" in trained
    assert "Thumbs.db" not in trained
    assert "warning: test" not in trained
    ((split, skipped),) = Run.open("run").summary["skipped"].items()
    assert (split, skipped["unreadable"]["count"]) == ("train", 2)
    assert skipped["unreadable"]["first"][1].startswith("cat/4.png")
    assert skipped["ignored"] == {"count": 1, "first": ["cat/<b>5.heic"]}
    page = (pets / "run" / "report.html").read_text(encoding="utf-8")
    assert "Left out of train: 2 unreadable (cat/3.png" in page
    assert "1 ignored (cat/&lt;b&gt;5.heic)." in page
    for words in (["evaluate", "run"], ["embed", "run", "--out", "z.npz"]):
        said = cli(*words, "--split", "train").err
        assert "warning: train: 2 unreadable (cat/3.png" in said
        assert cli(*words).err == ""


def test_what_a_system_leaves_behind_is_not_skipped():
    ignored = ("a/.DS_Store", "a/desktop.ini", "b/Thumbs.db", "b/notes.txt", "._c.jpg")
    report = LoadReport(missing=("d.jpg",), ignored=ignored, converted={"grey": ("e.jpg",)})
    assert report.skipped == {"missing": ("d.jpg",), "ignored": ("b/notes.txt",)}
    assert LoadReport(converted={"grey": ("e.jpg",)}).skipped_summary() == ""
