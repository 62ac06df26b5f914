"""The first second: help, lists and a user's mistakes are told without loading torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SLOW = ("torch", "scipy", "sklearn", "pandas", "numba", "PIL")
CODE = f"""
import sys
from uncollapse.cli import app
from uncollapse.cli.errors import run
code = run(app, sys.argv[1:])
print(code, *(name for name in {SLOW} if name in sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--help", 0),
        ("--version", 0),
        ("diagnose --help", 0),
        ("reproduce --list", 0),
        ("datasets", 0),
        ("reproduce fig99", 2),
        ("datasets nonesuch", 2),
        ("nonesuch", 2),
        ("train", 2),
        ("demo --seed x", 2),
        ("diagnose none.npz", 2),
        ("diagnose none.xyz", 2),
        ("evaluate none.npz", 2),
        ("evaluate none", 2),
        ("verify none.npz --pairs none.txt", 2),
        ("search none.npz 3", 2),
        ("embed none --out z.npz", 2),
        ("export none", 2),
        ("train none.toml", 2),
        ("forecast none.toml", 2),
        ("sweep none.toml", 2),
        ("report none", 2),
    ],
)
def test_what_computes_nothing_loads_nothing_slow(words: str, code: int, tmp_path: Path):
    settings = {name: value for name, value in os.environ.items() if name != "UNCOLLAPSE_DATA"}
    done = subprocess.run(
        [sys.executable, "-c", CODE, *words.split()],
        cwd=tmp_path,
        env=settings,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.stderr.splitlines()[-1] == str(code), done.stderr


def test_a_command_that_computes_does_load_torch(tmp_path: Path):
    """The test above would see it."""
    table = tmp_path / "z.csv"
    table.write_text("f1,f2\n" + "\n".join(f"{i},{i * i % 7}" for i in range(12)), "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", CODE, "diagnose", str(table)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert "torch" in done.stderr.splitlines()[-1]
