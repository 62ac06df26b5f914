"""`tools/house.py`: the sizes it measures, and what it says above a ceiling."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[1]
MODULE = '''"""A docstring
of two lines."""
# a comment
import os
from sys import path
__all__ = ["long"]


def long(
    x,
):
    """Documented."""

    text = """not a
    docstring"""
    return text, x, os, path
'''


def measured(folder, ceilings, room="room"):
    sources = folder / "house"
    (sources / room).mkdir(parents=True)
    (sources / room / "one.py").write_text(MODULE, "utf-8")
    (sources / room / "two.py").write_text("", "utf-8")
    (folder / "ceilings.txt").write_text(ceilings, "utf-8")
    command = [sys.executable, ROOT / "tools" / "house.py", sources, folder / "ceilings.txt"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


# Compiled loops may be long.
@pytest.mark.parametrize(("room", "longest"), [("room", "8  # lines"), ("_kernels", "1")])
def test_blank_lines_comments_and_docstrings_do_not_count(tmp_path, room, longest):
    ceilings = f"longest-function {longest}\n{room} 9 2\nall 9 2\n"
    done = measured(tmp_path, ceilings, room)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[1].split()[1:] == ["9", "9", "2", "2", "8", "33.3%"]


def test_what_is_above_a_ceiling_fails_and_is_named(tmp_path):
    done = measured(tmp_path, "longest-function 7\nroom 8 1\n")
    assert done.returncode == 1
    assert [line for line in done.stdout.splitlines() if line.startswith("too large")] == [
        "too large: room has 9 lines of code, at most 8 allowed",
        "too large: room has 2 files, at most 1 allowed",
        "too large: room/one.py: long has 8 lines, at most 7 allowed",
        "too large: all has no ceiling",
    ]
