"""The architecture page and the recipes of CONTRIBUTING: the picture is the code's, files exist."""

import re
import subprocess
import sys

import pytest

from docs.pages import ROOT, prose

PAGES = [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "architecture.md"]
HOMES = [ROOT, ROOT / "src" / "uncollapse", ROOT / "docs"]
CODE = {path.name for path in (ROOT / "src").rglob("*") if path.is_file()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_named_there_exist(page):
    named = re.findall(r"`([\w./-]+\.(?:py|toml|txt|md|csv)|[\w./-]+/[\w-]+)`", prose(page))
    assert len(named) > 8
    for name in [name for name in named if "NAME" not in name]:
        assert name in CODE or any((home / name).exists() for home in HOMES), name


def test_the_release_runs_tests_that_exist():
    tool = (ROOT / "tools" / "release_check.py").read_text(encoding="utf-8")
    named = re.findall(r'"(tests/[\w/]+\.py)"', tool)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.slow
@pytest.mark.processes
def test_the_picture_is_what_the_code_draws_now():
    command = [sys.executable, ROOT / "tools" / "architecture.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
