"""The pictures of the front page can be drawn again."""

from __future__ import annotations

import subprocess
import sys
from xml.etree import ElementTree

import pytest

from docs.pages import ROOT

pytestmark = pytest.mark.slow


def test_the_picture_is_drawn_by_its_script(tmp_path):
    script, picture = ROOT / "examples" / "collapse_picture.py", tmp_path / "collapse.svg"
    command = [sys.executable, str(script), "--steps", "2", "--out", str(picture)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert said.stdout.count("R@1") == 3
    drawn, kept = (
        path.read_text(encoding="utf-8") for path in (picture, ROOT / "docs/img/collapse.svg")
    )
    for words in ("batch-hard", "easy positives", "scale-free", "R@1 on letters never seen"):
        assert words in drawn
        assert words in kept


def test_the_moving_picture_is_drawn_by_its_script(tmp_path):
    script, picture = ROOT / "examples" / "moving_picture.py", tmp_path / "moving.svg"
    command = [sys.executable, str(script), "--steps", "2", "--out", str(picture)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    drawn, kept = (
        path.read_text(encoding="utf-8")
        for path in (picture, ROOT / "docs/img/collapse-moving.svg")
    )
    for text in (drawn, kept):
        root = ElementTree.fromstring(text)
        moving = root.findall(".//{*}animateTransform")
        assert len(moving) == 2 * 6 * 20  # two runs, six letters, twenty drawings
        for one in moving:
            times = [float(time) for time in one.get("keyTimes").split(";")]
            assert len(times) == len(one.get("values").split(";"))
            assert times == sorted(times)
            assert (times[0], times[-1]) == (0.0, 1.0)
        # Without animation each run shows one set of figures: those of its end.
        lasting = [t for t in root.findall(".//{*}text") if t.find("{*}tspan") is not None]
        assert sum(t.get("display") is None for t in lasting) == 2
    assert len(kept) < 400_000
