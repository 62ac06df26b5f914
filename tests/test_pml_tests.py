"""`tools/pml_tests.py`: a checkout's tests run against ours, each failure with its reason."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.processes
TESTS = """
import unittest
import torch
from pytorch_metric_learning.{package} import {name}
import uncollapse
class Test{name}(unittest.TestCase):
    def test_ours(self):
        made = {name}({arguments})
        self.assertIsInstance(made.wrapped, (uncollapse.Loss, uncollapse.Miner))
    def test_part(self):
        {name}({part})
    def test_wrong(self):
        self.assertEqual({name}({arguments}).wrapped, 0)
"""


def checkout(folder, package, file, name, arguments, part):
    for place in ("tests", "tests/losses", "tests/miners"):
        (folder / place).mkdir()
        (folder / place / "__init__.py").touch()
    text = TESTS.format(package=package, name=name, arguments=arguments, part=part)
    (folder / "tests" / package / f"test_{file}.py").write_text(text)
    return folder


def run(folder):
    command = [sys.executable, "tools/pml_tests.py", str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


LP = "distance=__import__('pytorch_metric_learning').distances.LpDistance()"
NTXENT = ("losses", "ntxent_loss", "NTXentLoss", "0.1", LP)
MARGIN = ("miners", "triplet_margin_miner", "TripletMarginMiner", "margin=0.1", "margin=-0.1")


@pytest.mark.parametrize(
    ("parts", "left"),
    [(NTXENT, "distance LpDistance"), (MARGIN, "triplets outside the margin, or a margin below 0")],
)
def test_the_table_tells_what_passes_what_is_left_and_what_is_unexplained(tmp_path, parts, left):
    done = run(checkout(tmp_path, *parts))
    (line,) = [x for x in done.stdout.splitlines() if x.count("|") == 7 and "| 3 |" in x]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1:5] == ["3", "1", "2", "1"]  # PML's own has no `wrapped`, but makes the part
    assert f"left to PML: {left}" in cells[5]
    assert "AssertionError at line" in cells[5]
    assert done.returncode == 1


def test_a_folder_that_is_no_checkout_is_refused(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 2
    assert "has no tests/losses" in done.stderr
