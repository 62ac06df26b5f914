"""The pictures of the front page can be drawn again."""

import subprocess
import sys
from xml.etree import ElementTree

import pytest

from docs.pages import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.night]

WORDS = ("batch-hard", "easy positives", "scale-free", "R@1 on letters never seen")


def drawn_and_kept(script, kept, tmp_path):
    picture = tmp_path / "picture.svg"
    command = [sys.executable, ROOT / "examples" / script, "--steps", "2", "--out", picture]
    subprocess.run(command, check=True, capture_output=True)
    return [path.read_text(encoding="utf-8") for path in (picture, ROOT / "docs/img" / kept)]


def test_the_picture_is_drawn_by_its_script(tmp_path):
    for text in drawn_and_kept("collapse_picture.py", "collapse.svg", tmp_path):
        assert [words for words in WORDS if words not in text] == []


def test_the_moving_picture_is_drawn_by_its_script(tmp_path):
    for text in drawn_and_kept("moving_picture.py", "collapse-moving.svg", tmp_path):
        root = ElementTree.fromstring(text)
        moving = root.findall(".//{*}animateTransform")
        assert len(moving) == 2 * 6 * 20  # two runs, six letters, twenty drawings
        times = [float(time) for time in moving[0].get("keyTimes").split(";")]
        assert times == sorted(times)
        assert (times[0], times[-1]) == (0.0, 1.0)
        # Without animation each run shows one set of figures: those of its end.
        lasting = [t for t in root.findall(".//{*}text") if t.find("{*}tspan") is not None]
        assert sum(t.get("display") is None for t in lasting) == 2
