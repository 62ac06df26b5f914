"""README and docs have the figures of the result files, and their pictures can be drawn again."""

import shutil
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from docs.pages import ROOT

pytestmark = pytest.mark.processes
WORDS = ("batch-hard", "easy positives", "scale-free", "R@1 on letters never seen")


def headlines(*words):
    command = [sys.executable, str(ROOT / "tools" / "headlines.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_pages_have_the_figures_of_the_result_files():
    assert headlines("--check").returncode == 0


def test_another_figure_in_a_page_or_in_the_results_is_seen_and_written(tmp_path):
    for name in ("forecast", "rescue", "table3"):
        shutil.copytree(ROOT / "docs" / "results" / name, tmp_path / "docs" / "results" / name)
    pages = ("forecast", "guard", "measured", "watch")
    for name in ("README.md", *(f"docs/{page}.md" for page in pages)):
        shutil.copy(ROOT / name, tmp_path / name)
    readme = tmp_path / "README.md"
    before = readme.read_text(encoding="utf-8")
    readme.write_text(before.replace("**0.996**", "**0.999**"), encoding="utf-8")
    words = ("--root", str(tmp_path))
    assert "README.md" in headlines("--check", *words).stderr
    assert headlines(*words).returncode == 0
    assert readme.read_text(encoding="utf-8") == before
    result = tmp_path / "docs" / "results" / "table3" / "table3.csv"
    result.write_text(result.read_text().replace("70.1037", "71.1037"), encoding="utf-8")
    assert "README.md, docs/measured.md" in headlines("--check", *words).stderr


def drawn_and_kept(script, kept, tmp_path):
    picture = tmp_path / "picture.svg"
    command = [sys.executable, ROOT / "examples" / script, "--steps", "2", "--out", picture]
    subprocess.run(command, check=True, capture_output=True)
    return [path.read_text(encoding="utf-8") for path in (picture, ROOT / "docs/img" / kept)]


@pytest.mark.night
def test_the_picture_is_drawn_by_its_script(tmp_path):
    for text in drawn_and_kept("collapse_picture.py", "collapse.svg", tmp_path):
        assert [words for words in WORDS if words not in text] == []


@pytest.mark.night
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
