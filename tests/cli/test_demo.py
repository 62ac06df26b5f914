"""The demo runs, its verdicts and the order of its figures hold, and it spares what is not its."""

from __future__ import annotations

import contextlib
import io
import os
import signal

import pytest

from uncollapse.cli import app
from uncollapse.cli.demo import ACTS
from uncollapse.cli.errors import run
from uncollapse.training import Run, train
from uncollapse.training.session import Session

FOLDERS = [part.folder for act in ACTS for part in act.parts]


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A demo of two steps a run, over an interrupted one: its folder, and what it printed."""
    out, shown = tmp_path_factory.mktemp("demo") / "out", io.StringIO()
    advance = Session.advance

    def interrupted(self):
        os.kill(os.getpid(), signal.SIGINT)
        return advance(self)

    words = ["demo", "--out", str(out), "--steps"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        with patch.context() as stopped:
            stopped.setattr(Session, "advance", interrupted)
            assert run(app, [*words, "3", "--seed", "1"]) == 130
        assert [p.name for p in out.iterdir()] == [FOLDERS[0]]
        with contextlib.redirect_stdout(shown):
            assert run(app, [*words, "2"]) == 0
    return out, shown.getvalue()


def test_a_short_demo_leaves_four_runs_and_a_page(short):
    out, shown = short
    assert sorted(p.name for p in out.iterdir()) == sorted([*FOLDERS, "demo.html"])
    assert "demo.html" in shown
    page = (out / "demo.html").read_text(encoding="utf-8")
    for words in ("Network collapse", "Class collapse", "guard.action=rescue", "never trained on"):
        assert words in page
    assert page.count("<svg") > 10


def test_a_demo_begins_anew_after_an_interrupted_one(short):
    out, _ = short  # the interrupted one had another seed
    assert {Run(out / name).config.seed for name in FOLDERS} == {0}
    assert {Run(out / name).summary["status"] for name in FOLDERS} == {"finished"}


def test_no_line_of_a_demo_is_wider_than_80_columns(short):
    *lines, _, page = short[1].splitlines()
    assert page.endswith("demo.html")  # a path is as long as it is
    assert max(map(len, lines)) <= 80


def test_an_interrupted_demo_leaves_no_page(short, monkeypatch, capsys, tmp_path):
    def interrupt(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "advance", interrupt)
    (tmp_path / "demo.html").write_text("Made by uncollapse", encoding="utf-8")
    assert run(app, ["demo", "--out", str(tmp_path), "--steps", "3"]) == 130
    assert [p.name for p in tmp_path.iterdir()] == [FOLDERS[0]]


@pytest.mark.parametrize("name", [FOLDERS[1], "demo.html"])
def test_what_is_not_of_a_demo_is_refused_and_kept(tmp_path, capsys, name):
    other = tmp_path / name
    if name == "demo.html":
        other.write_text("mine", encoding="utf-8")
    else:
        other.mkdir()
        (other / "thesis.txt").write_text("mine", encoding="utf-8")
    assert run(app, ["demo", "--out", str(tmp_path), "--steps", "1"]) == 2
    assert "not of a demo" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert (other if other.is_file() else other / "thesis.txt").read_text("utf-8") == "mine"


def test_a_run_of_something_else_in_its_place_is_kept(tmp_path, capsys):
    config = ACTS[0].parts[0].config(0, 1).with_changes({"loss": {"margin": 0.3}})
    train(config, tmp_path / FOLDERS[0])
    assert run(app, ["demo", "--out", str(tmp_path), "--steps", "1"]) == 2
    assert "not of a demo" in capsys.readouterr().err
    assert Run(tmp_path / FOLDERS[0]).config.loss.margin == 0.3


@pytest.mark.slow
def test_the_whole_demo_shows_what_it_says(tmp_path, capsys):
    assert run(app, ["demo", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "rolled back" in shown.lower()
    ends = {}
    for act in ACTS:
        key = act.score.partition("/")[2]
        for part in act.parts:
            measures = Run(tmp_path / part.folder).measures()
            before, after = (one.splits["test"] for one in (measures.before, measures.after))
            ends[part.folder] = after.health.verdict, before.scores[key], after.scores[key]
    (point, start, lost), (saved, _, kept), (merged, coarse, low), (cured, _, high) = (
        ends[name] for name in FOLDERS
    )
    assert (point, saved, merged, cured) == (
        "network-collapse",
        "healthy",
        "class-collapse",
        "healthy",
    )
    assert lost < start < kept
    assert low < coarse < high
    losses = [row["loss"] for row in Run(tmp_path / FOLDERS[0]).metrics() if "loss" in row]
    assert losses[-1] == pytest.approx(0.2, abs=1e-3)  # the margin
