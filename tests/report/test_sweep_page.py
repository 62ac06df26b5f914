"""The report of a sweep: one page, one Markdown table, each chart as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from uncollapse._base.files import read_csv, write_csv
from uncollapse.report.sweep_page import sweep_report

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="module")
def written(sweep_folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sweep_report(sweep_folder)}


def test_the_page_counts_what_collapsed_and_names_the_split_of_each_recall(written: dict[str, str]):
    page = written["sweep.html"]
    for words in (
        "5 of 11 runs collapsed", "best R@1 on test", "Best R@1 on test of those that did not",
        "Diameter against batch size", "R@1 on test, in %", "P by K", "Base config",
    ):  # fmt: skip
        assert words in page
    assert "R@1<" not in page


def test_a_run_that_failed_stands_with_its_error(written: dict[str, str]):
    page = written["sweep.html"]
    failed = page[page.index('<section id="failed"') :]
    assert "p=8,k=4,dim=16,seed=1" in failed.replace("<wbr>", "")
    assert "out of memory" in failed


def test_each_kind_of_chart_is_a_file(written: dict[str, str]):
    kinds = {name.partition(".")[0].partition("-")[0] for name in written if name.endswith(".svg")}
    assert kinds == {"diameter", "collapse", "shapes"}


def test_the_markdown_has_a_line_for_each_point_of_the_grid(written: dict[str, str]):
    first, _, head, line, *rows = written["sweep.md"].splitlines()
    assert first.startswith("12 runs, 1 failed; 5 of 11 collapsed.")
    assert "for 6 runs, of which 6 ended above it" in first
    assert head.endswith("| bound (17) | R@1 on test |")
    assert head.count("|") == line.count("|") == rows[0].count("|")
    assert rows[0] == "| 2 | 2 | 128 | 0 of 2 | 0.00 to 0.66 | 2 | 1.45 | 1 | 90\u00a0% |"
    assert len(rows) == 6


def test_charts_of_an_earlier_report_go(tmp_path: Path, make_sweep: Callable[..., Path]):
    folder = make_sweep(tmp_path / "again")
    (folder / "pictures").mkdir()
    (folder / "pictures" / "old.svg").write_text("<svg/>")
    sweep_report(folder)
    assert not (folder / "pictures" / "old.svg").exists()


def test_runs_that_end_below_their_start_are_counted_and_named(
    tmp_path: Path, make_sweep: Callable[..., Path]
):
    folder = make_sweep(tmp_path / "below")
    header, rows = read_csv(folder / "results.csv")
    for row in rows[:-1]:
        row += ["0.5", "0.2"]  # the large batches end at 0.1
    rows[-1] += ["", ""]
    header += ["recall_init", "fine_recall_init"]  # there are no fine labels at the end
    write_csv(folder / "results.csv", header, rows)
    sweep_report(folder)
    said = "5 of 11 runs end below their network before training in R@1 on test: p=8,k=4,dim=128"
    for name in ("sweep.html", "sweep.md"):
        text = (folder / name).read_text(encoding="utf-8")
        assert said in text
        assert "by fine labels" not in text
        assert "R@1 on test, before training" in text
    rows = (folder / "sweep.md").read_text(encoding="utf-8").splitlines()
    assert rows[2].endswith("| R@1 on test, before training | R@1 on test |")
    assert rows[4].endswith("| 50\u00a0% | 90\u00a0% |")
