"""The figures of README and docs are those of the result files."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def headlines(*words):
    command = [sys.executable, str(ROOT / "tools" / "headlines.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_pages_have_the_figures_of_the_result_files():
    assert headlines("--check").returncode == 0


def test_another_figure_in_a_page_or_in_the_results_is_seen_and_written(tmp_path):
    for name in ("forecast", "rescue", "table3"):
        shutil.copytree(ROOT / "docs" / "results" / name, tmp_path / "docs" / "results" / name)
    for name in ("README.md", "docs/forecast.md", "docs/guard.md", "docs/measured.md"):
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
