"""The paper's numbers beside ours, and the network before training: rows, notes, the page."""

import math

import pytest

from support.pages import rows_of
from uncollapse.papers.comparison import Finding, Score, Scorecard, before_table, publish, spread
from uncollapse.papers.items import Request


def compared(paper, ours, base=(50.0, (40.0, 42.0)), claims=()):
    scores = [Score("a", "R@1", base[0], base[1]), Score("b", "R@1", paper, ours, than="a")]
    return Scorecard(scores, claims)


@pytest.mark.parametrize(
    ("paper", "ours", "direction"),
    [
        (60.0, (41.0, 43.0), "yes (2 of 2 seeds)"),
        (60.0, (41.0, 40.0), "NO (1 of 2 seeds)"),
        (60.0, (45.0, 41.0), "partly (1 of 2 seeds)"),
        (40.0, (39.0, 38.0), "yes (2 of 2 seeds)"),
        (40.0, (41.0, 43.0), "NO (0 of 2 seeds)"),
        (None, (41.0, 43.0), "yes (2 of 2 seeds)"),
        (60.0, (40.0, 42.0), "NO (0 of 2 seeds)"),
        (60.0, (math.nan, 42.0), ""),
    ],
)
def test_the_direction_is_the_sign_of_the_papers_difference(paper, ours, direction):
    comparison = compared(paper, ours)
    assert comparison.direction(comparison.scores[1]) == direction
    assert comparison.direction(comparison.scores[0]) == ""


def test_a_miss_is_saved_as_one(tmp_path):
    comparison = compared(
        60.0, (39.0, 38.0), claims=[Finding("loss [a|b]", "falls", "rises", False)]
    )
    request = Request("t", tmp_path / "new", "laptop")
    made = publish(request, "Title", comparison, notes=["A note."])
    page, comma = made.files
    assert page.parent == tmp_path / "new" / "t" / "laptop"
    text = page.read_text(encoding="utf-8")
    assert "| change | paper | ours | difference (ours − paper) | reproduced? |" in text
    change = "| R@1: a → b | 50.0 → 60.0 (+10.0) | 41.0 → 38.5 (-2.5) | -12.5 | NO (0 of 2 seeds) |"
    assert change in text
    assert "| loss [a\\|b] | falls | rises | NO |" in text
    assert "| b | paper | 60 |\n| b | **ours** | **38.5 ± 0.7** |\n" in text
    assert "| b | ours − paper | -21.5 |" in text
    assert text.startswith("# Title\n\n- command: `uncollapse reproduce t --scale laptop`\n")
    assert text.endswith("\n\nA note.\n")
    rows = rows_of(comma)
    assert rows[1]["by seed"] == "39.0000 38.0000"
    assert rows[2]["reproduced"] == "NO"
    assert made.pages[0].markdown() == text


def test_nothing_is_judged_at_smoke(tmp_path):
    comparison = compared(60.0, (39.0, 38.0), claims=[Finding("loss", "falls", "rises", False)])
    page, comma = publish(Request("t", tmp_path, "smoke"), "Title", comparison).files
    text = page.read_text(encoding="utf-8")
    assert text.count("not judged at smoke") == 2
    assert "NO" not in text
    assert [row["reproduced"] for row in rows_of(comma)] == ["", *["not judged at smoke"] * 2]


def test_without_a_number_of_the_paper_there_is_no_difference():
    grid, changes = compared(None, (41.0, 43.0)).tables()
    assert changes.rows == [["R@1: a → b", "-", "41.0 → 42.0 (+1.0)", "-", "yes (2 of 2 seeds)"]]
    rows = ["a paper", "a ours", "a ours − paper", "b ours"]
    assert [" ".join(row[:2]) for row in grid.rows] == rows
    assert grid.strong == [1, 3]
    mean, deviation = spread([3.0])  # one seed has no spread
    assert (mean, math.isnan(deviation), math.isnan(spread([])[0])) == (3.0, True, True)


def table_of(*scores):
    return Scorecard(scores).tables()[0]


@pytest.mark.parametrize(
    ("before", "end", "words"),
    [
        ((49.6, 50.0), (37.0, 38.0), ["R@1: 37.5 against 49.8", "2 of 2 seeds"]),
        ((50.0, 40.0), (49.0, 52.0), ["1 of 2 seeds", "mean is 50.5 against 45.0"]),
        ((50.0,), (49.0,), ["R@1: 49.0 against 50.0", "1 of 1 seed."]),
        ((50.0, 50.0), (50.0, 51.0), None),
    ],
)
def test_a_method_that_ends_below_its_start_says_so(before, end, words):
    note = Score("M", "R@1", None, end, before=before).ends_below
    if words is None:
        assert note == ""
    else:
        for part in ("M ends below the network before training in R@1", *words):
            assert part in note


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
    (note,) = table.notes
    assert note.startswith("a ends below")
    assert 0 in table.strong
    starts = {"a": (50.0,), "b": (40.0,)}  # which differ
    table = table_of(*(Score(m, "R@1", None, (60.0,), before=v) for m, v in starts.items()))
    rows = ["a before training 50.0", "a ours 60.0", "b before training 40.0", "b ours 60.0"]
    assert [" ".join(row[:3]) for row in table.rows] == rows
    assert list(table.strong) == [1, 3]


def test_the_sentence_stands_under_its_table_and_the_starts_in_the_csv(tmp_path):
    scores = [Score("a", "R@1", 60.0, (37.0, 38.0), before=(49.0, 51.0))]
    made = publish(Request("t", tmp_path, "smoke"), "T", Scorecard(scores), notes=["N."])
    text = made.files[0].read_text(encoding="utf-8")
    grid, below, note = text.index("| a | **ours**"), text.index("- a ends below"), text.index("N.")
    assert grid < below < note
    assert rows_of(made.files[1])[0]["before training"] == "49.0000 51.0000"


def test_a_table_of_starts_and_ends():
    table = before_table([Score("a", "R@1", None, (50.0, 54.0), before=(40.0, 42.0))], "title")
    assert table.rows == [["a", "R@1", "41.0 ± 1.4", "52.0 ± 2.8", "+11.0"]]
    assert list(table.notes) == []
