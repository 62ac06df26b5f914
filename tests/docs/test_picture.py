"""The picture of the front page can be drawn again."""

from __future__ import annotations

import subprocess
import sys

from docs.pages import ROOT


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
