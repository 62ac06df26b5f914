"""Comparisons: what the runs logged, what is measured again, and their maps side by side."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from uncollapse._base.check import InputError
from uncollapse.report import compare, write_comparison
from uncollapse.training import Run


def test_the_numbers_are_those_logged_and_measured(easy_run: Run, hard_run: Run):
    rows = compare({"easy": easy_run, "hard": hard_run}).numbers()
    assert [(row["run"], row["split"]) for row in rows] == [("easy", "test"), ("hard", "test")]
    for row, run in zip(rows, (easy_run, hard_run), strict=True):
        assert row["recall@1"] == run.summary["metrics"]["test/recall@1"]
        assert math.isnan(row["fine/recall@1"])  # digits has no fine labels
        assert 0 < row["class_ratio"] <= 1
        assert row["modes"] >= 1


def test_the_page_has_a_table_and_a_map_for_each_run(easy_run: Run, hard_run: Run, tmp_path: Path):
    path = write_comparison(
        {"Easy positives": easy_run, "Hard positives": hard_run},
        tmp_path / "page.html",
        title="Two ways",
        text="Only the positives differ.",
        notes={"Hard positives": "the farthest of the class"},
    )
    text = path.read_text(encoding="utf-8")
    assert "<h1>Two ways</h1>" in text
    assert "Only the positives differ." in text
    assert "the farthest of the class, two principal axes of 4" in text
    assert text.count('<figure class="map">') == 2
    assert "R@1, fine labels" not in text
    assert "modes per class" in text


def test_a_run_without_measures_keeps_its_logged_numbers(
    easy_run: Run, hard_run: Run, tmp_path: Path
):
    shutil.copytree(hard_run.path, tmp_path / "gone")
    (tmp_path / "gone" / "measures.json").unlink()
    found = compare({"easy": easy_run, "gone": Run(tmp_path / "gone")})
    last = found.numbers()[-1]
    assert last["recall@1"] == hard_run.summary["metrics"]["test/recall@1"]
    assert last["verdict"] is None
    assert math.isnan(last["modes"])
    assert "has no measures.json" in found.page().render()


def test_nothing_to_compare_is_a_clear_error():
    with pytest.raises(InputError, match="at least one run"):
        compare({})
