"""The network before training beside the end: rows, sentences, and where a page has them."""

import csv

import pytest

from uncollapse.papers.comparison import Comparison, Score, before_table, publish
from uncollapse.papers.items import Request


def table_of(*scores):
    return Comparison(scores).tables()[0]


@pytest.mark.parametrize(
    ("before", "end", "said"),
    [
        (
            (49.6, 50.0),
            (37.0, 38.0),
            "M ends below the network before training in R@1: 37.5 against 49.8, 2 of 2 seeds.",
        ),
        (
            (50.0, 40.0),
            (49.0, 52.0),
            "M ends below the network before training in R@1 with 1 of 2 seeds; the mean is 50.5 "
            "against 45.0.",
        ),
        (
            (50.0,),
            (49.0,),
            "M ends below the network before training in R@1: 49.0 against 50.0, 1 of 1 seed.",
        ),
        ((50.0, 50.0), (50.0, 51.0), ""),
    ],
)
def test_a_method_that_ends_below_its_start_says_so(before, end, said):
    assert Score("M", "R@1", None, end, before=before).ends_below == said


def test_methods_that_begin_alike_share_one_row_before_training():
    start = (49.0, 51.0)
    table = table_of(
        Score("a", "R@1", 60.0, (37.0, 38.0), before=start),
        Score("a", "NMI", 40.0, (30.0, 30.0), before=(20.0, 20.0)),
        Score("b", "R@1", 70.0, (66.0, 68.0), than="a", before=start),
        Score("b", "NMI", 50.0, (10.0, 10.0), before=(20.0, 20.0)),
    )
    assert table.rows[0] == ["before training", "ours", "50.0 ± 1.4", "20.0 ± 0.0"]
    assert [row[:2] for row in table.rows].count(["before training", "ours"]) == 1
    # NMI of b fell too; the sentence is about R@1.
    assert table.notes == [
        "a ends below the network before training in R@1: 37.5 against 50.0, 2 of 2 seeds."
    ]
    assert 0 in table.strong


def test_methods_that_begin_differently_have_each_their_own():
    table = table_of(
        Score("a", "R@1", None, (60.0,), before=(50.0,)),
        Score("b", "R@1", None, (60.0,), before=(40.0,)),
    )
    assert [row[:3] for row in table.rows] == [
        ["a", "before training", "50.0"],
        ["a", "ours", "60.0"],
        ["b", "before training", "40.0"],
        ["b", "ours", "60.0"],
    ]
    assert list(table.strong) == [1, 3]


def test_the_sentence_stands_under_its_table_and_the_starts_in_the_csv(tmp_path):
    scores = [Score("a", "R@1", 60.0, (37.0, 38.0), before=(49.0, 51.0))]
    made = publish(Request("t", tmp_path, "smoke"), "T", Comparison(scores), notes=["N."])
    text = made.files[0].read_text(encoding="utf-8")
    grid, below, note = text.index("| a | **ours**"), text.index("- a ends below"), text.index("N.")
    assert grid < below < note
    with made.files[1].open(encoding="utf-8") as file:
        assert next(csv.DictReader(file))["before training"] == "49.0000 51.0000"


def test_a_table_of_starts_and_ends():
    table = before_table([Score("a", "R@1", None, (50.0, 54.0), before=(40.0, 42.0))], "title")
    assert table.rows == [["a", "R@1", "41.0 ± 1.4", "52.0 ± 2.8", "+11.0"]]
    assert list(table.notes) == []
