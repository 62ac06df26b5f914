"""Comparisons: what the runs logged, what is measured again, and their maps side by side."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from uncollapse._base.check import InputError
from uncollapse.report import compare, write_comparison
from uncollapse.report.run_page import make_run_page, view_runs
from uncollapse.training import Run
from uncollapse.training.measures import write_measures


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


def raised(run: Run, folder: Path, start: float) -> Run:
    """A copy whose network before training had this R@1."""
    shutil.copytree(run.path, folder)
    copy = Run(folder)
    measures = copy.measures()
    figures = measures.before.splits["test"]
    better = replace(figures, scores={**figures.scores, "recall@1": start})
    before = replace(measures.before, splits={"test": better})
    write_measures(folder, replace(measures, before=before))
    return copy


def test_a_run_that_ends_below_its_start_says_so_beside_it(
    easy_run: Run, hard_run: Run, tmp_path: Path
):
    fallen = raised(hard_run, tmp_path / "fallen", 0.999)
    found = compare({"easy": easy_run, "fallen": fallen})
    first, last = found.numbers()
    assert first["recall@1_start"] == easy_run.measures().before.splits["test"].scores["recall@1"]
    assert last["recall@1_start"] == 0.999
    assert math.isnan(last["fine/recall@1_start"])
    page = found.page().render()
    assert "R@1 on test, before training" in page
    assert "fallen: R@1 on test ends below the network before training: " in page
    assert " % against 99.9 %." in page

    text = make_run_page(view_runs([fallen])).render()
    assert "R@1 on test, before training" in text
    assert "R@1 on test ends below the network before training: " in text
    both = make_run_page(view_runs([easy_run, fallen])).render()
    assert "fallen: R@1 on test ends below" in both
    fell = first["recall@1"] < first["recall@1_start"]
    assert ("easy: R@1 on test ends below" in both) == fell
