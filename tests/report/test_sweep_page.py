"""The report of a sweep: one page, one Markdown table, each chart as a file."""

from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import stats

from report.examples import copy_run, write_sweep
from uncollapse._base.files import csv_rows, write_csv
from uncollapse.charts import svg
from uncollapse.charts.marks import Points, Polyline, Text
from uncollapse.metrics.intervals import wilson_interval
from uncollapse.report.sweep_page import (
    ChartedRun,
    Facet,
    diameter_chart,
    rate_chart,
    read_view,
    sweep_report,
)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = write_sweep(tmp_path_factory.mktemp("sweeps") / "shapes")
    (folder / "pictures").mkdir()
    (folder / "pictures" / "old.svg").write_text("<svg/>")
    texts = {path.name: path.read_text(encoding="utf-8") for path in sweep_report(folder)}
    assert not (folder / "pictures" / "old.svg").exists()  # charts of an earlier report go
    return texts


def test_the_page_counts_what_collapsed_and_names_the_split_of_each_recall(written):
    page = written["sweep.html"]
    for words in ("5 of 11 runs collapsed", "best R@1 on test", "batch size 32: diameter 0.01"):
        assert words in page
    assert all(words in page for words in ("Diameter against batch size", "P by K", "Base config"))
    assert "R@1<" not in page
    failed = page[page.index('<section id="failed"') :]
    assert "p=8,k=4,dim=16,seed=1" in failed.replace("<wbr>", "")
    assert "out of memory" in failed
    kinds = {name.partition(".")[0].partition("-")[0] for name in written if name.endswith(".svg")}
    assert kinds == {"diameter", "collapse", "shapes"}
    assert "P 2: 72, 72. P 8: 72, 0.5" in written["shapes-1.svg"]  # in per cent
    assert "P 2: 90, 90. P 8: 90, 10" in written["shapes-2.svg"]


def test_the_markdown_has_a_line_for_each_point_of_the_grid(written):
    first, _, head, _, *rows = written["sweep.md"].splitlines()
    assert first.startswith("12 runs, 1 failed; 5 of 11 collapsed.")
    assert "for 6 runs, of which 6 ended above it" in first
    assert head.endswith("| bound (17) | R@1 on test |")
    assert rows[0] == "| 2 | 2 | 128 | 0 of 2 | 0.00 to 0.66 | 2 | 1.45 | 1 | 90\u00a0% |"
    assert len(rows) == 6


def test_runs_that_end_below_their_start_are_counted_and_named(tmp_path):
    folder = write_sweep(tmp_path / "below")
    header, *rows = csv_rows(folder / "results.csv")
    for row in rows[:-1]:
        row += ["0.5", "0.2"]  # the large batches end at 0.1
    rows[-1] += ["", ""]
    header += ["recall_init", "fine_recall_init"]  # there are no fine labels at the end
    write_csv(folder / "results.csv", header, rows)
    sweep_report(folder)
    words = "5 of 11 runs end below their network before training in R@1 on test: p=8,k=4,dim=128"
    for name in ("sweep.html", "sweep.md"):
        text = (folder / name).read_text(encoding="utf-8")
        assert words in text
        assert "by fine labels" not in text
    lines = text.splitlines()
    assert lines[2].endswith("| R@1 on test, before training | R@1 on test |")
    assert lines[4].endswith("| 50\u00a0% | 90\u00a0% |")


def test_the_defaults_are_those_that_a_run_of_the_sweep_was_measured_with(tmp_path):
    folder = write_sweep(tmp_path / "sweep")
    assert read_view(folder).defaults == {}
    run = copy_run(folder / "runs" / "a")
    (folder / "runs" / "0").mkdir()
    (folder / "runs" / "0" / "measures.json").write_text("{")
    view = read_view(folder)
    assert view.defaults == run.measures().defaults
    assert (view.config["model.backbone"], view.config["loss.margin"]) == ("linear", 0.2)
    text = run.config_file.read_text(encoding="utf-8")
    run.config_file.write_text(text.replace('"triplet"', '"margin"'), encoding="utf-8")
    assert read_view(folder).defaults == {}  # those of another loss


@pytest.mark.parametrize(("count", "total"), [(0, 5), (3, 7), (59, 60), (60, 60)])
def test_the_interval_of_a_share_is_wilsons(count, total):
    expected = stats.binomtest(count, total).proportion_ci(0.95, method="wilson")
    rate = wilson_interval(count / total, total)
    assert (rate.low, rate.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def point(x, size, bound=None, group="", *, start=2.0):
    fell = size < 0.01 * start
    row = {"diameter": size, "diameter_init": start, "bound": bound, "collapsed": fell}
    return ChartedRun(x, row, group)


SIZES = np.geomspace(2.0, 1e-4, 6).tolist()
FALLEN = [point(2.0**i, size, 1.0 - 0.3 * i, f"P = {i % 2}") for i, size in enumerate(SIZES)]
RUNS = Facet("batch size", "A & B", FALLEN)


def test_collapsed_runs_are_crosses_and_the_bound_stops_where_it_says_nothing():
    chart = diameter_chart(RUNS)
    crosses = [m for m in chart.marks if isinstance(m, Points) and m.kind == "cross"]
    assert len(crosses) == sum(run.row["collapsed"] for run in RUNS.points) > 0
    assert all(cross.color == "bad" for cross in crosses)
    assert "says nothing (is at most 0) at 2 of 6 batch sizes" in chart.note
    assert "logarithmic scale" in chart.note
    (bound,) = [m for m in chart.marks if isinstance(m, Polyline) and m.color == "s0"]
    assert len(bound.points) == 4


def test_a_chart_without_a_wide_range_is_linear_and_starts_at_zero():
    near = [point(x, 1.0 + 0.1 * x, start=1.0) for x in (1.0, 2.0)]
    chart = diameter_chart(Facet("margin", "", near))
    assert "logarithmic" not in chart.note
    assert "bound (17)" not in [entry.name for entry in chart.legend]
    assert "0" in [m.text for m in chart.marks if isinstance(m, Text)]


@pytest.mark.parametrize("draw", [diameter_chart, rate_chart])
def test_a_picture_stands_alone_as_well_formed_svg(draw):
    root = ElementTree.fromstring(svg(draw(RUNS)))
    assert "--card" in "".join(root.itertext())  # it brings its colours
