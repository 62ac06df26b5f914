"""The demo runs, its verdicts and the order of its figures hold, and it spares what is not its."""

import os
import shutil
import signal

import pytest

from uncollapse.cli.demo import ACTS
from uncollapse.training import Run
from uncollapse.training.session import Session

FOLDERS = [part.folder for act in ACTS for part in act.parts]


@pytest.mark.slow
def test_a_short_demo_begins_anew_after_an_interrupted_one(folder, cli, monkeypatch):
    advance = Session.advance

    def interrupted(self):
        os.kill(os.getpid(), signal.SIGINT)
        return advance(self)

    out = folder / "out"
    out.mkdir()
    (out / "demo.html").write_text("Made by uncollapse", encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(Session, "advance", interrupted)
        cli("demo", "--out", out, "--steps", "3", "--seed", "1", code=130)
    assert [path.name for path in out.iterdir()] == [FOLDERS[0]]  # no page
    assert cli("demo", "--out", out, "--steps", "2").out.splitlines()[-1].endswith("demo.html")
    assert sorted(path.name for path in out.iterdir()) == sorted([*FOLDERS, "demo.html"])
    assert {Run(out / name).config.seed for name in FOLDERS} == {0}
    assert {Run(out / name).summary["status"] for name in FOLDERS} == {"finished"}
    page = (out / "demo.html").read_text(encoding="utf-8")
    assert "guard.action=rescue" in page
    assert page.count("<svg") > 10


@pytest.mark.parametrize("name", [f"{FOLDERS[1]}/thesis.txt", "demo.html"])
def test_what_is_not_of_a_demo_is_refused_and_kept(tmp_path, cli, name):
    other = tmp_path / name
    other.parent.mkdir(exist_ok=True)
    other.write_text("not of a demo", encoding="utf-8")
    assert "no demo wrote" in cli("demo", "--out", tmp_path, "--steps", "1", code=2).err
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [other]
    assert other.read_text("utf-8") == "not of a demo"


@pytest.mark.slow
def test_a_run_of_something_else_in_its_place_is_kept(plain, tmp_path, cli):
    shutil.copytree(plain, tmp_path / FOLDERS[0])
    assert "no demo wrote" in cli("demo", "--out", tmp_path, "--steps", "1", code=2).err
    assert Run(tmp_path / FOLDERS[0]).summary["status"] == "finished"


@pytest.mark.night
def test_the_whole_demo_shows_what_it_says(tmp_path, cli):
    assert "rolled back" in cli("demo", "--out", tmp_path).out.lower()
    ends = {}
    for act in ACTS:
        key = act.score.partition("/")[2]
        for part in act.parts:
            measures = Run(tmp_path / part.folder).measures()
            before, after = (when.splits["test"] for when in (measures.before, measures.after))
            ends[part.folder] = after.health.verdict, before.scores[key], after.scores[key]
    (point, start, lost), (saved, _, kept), (merged, coarse, low), (cured, _, high) = (
        ends[name] for name in FOLDERS
    )
    assert (point, saved) == ("network-collapse", "healthy")
    assert (merged, cured) == ("class-collapse", "healthy")
    assert lost < start < kept
    assert low < coarse < high
    losses = [row["loss"] for row in Run(tmp_path / FOLDERS[0]).metrics() if "loss" in row]
    assert losses[-1] == pytest.approx(0.2, abs=1e-3)  # the margin
