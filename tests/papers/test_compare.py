"""The paper's numbers beside ours: directions, the page, the CSV and the command on it."""

import csv
import math

import pytest

from uncollapse.papers.comparison import Claim, Comparison, Score, publish, spread
from uncollapse.papers.items import Request


def compared(paper, ours, base=(50.0, (40.0, 42.0)), claims=()):
    scores = [Score("a", "R@1", base[0], base[1]), Score("b", "R@1", paper, ours, than="a")]
    return Comparison(scores, claims)


@pytest.mark.parametrize(
    ("paper", "ours", "said"),
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
def test_the_direction_is_the_sign_of_the_papers_difference(paper, ours, said):
    found = compared(paper, ours)
    assert found.direction(found.scores[1]) == said
    assert found.direction(found.scores[0]) == ""


def test_a_miss_is_saved_as_one(tmp_path):
    found = compared(60.0, (39.0, 38.0), claims=[Claim("loss [a|b]", "falls", "rises", False)])
    request = Request("t", tmp_path / "new", "smoke")
    made = publish(request, "Title", found, notes=["A note."])
    page, comma = made.files
    assert page.parent == tmp_path / "new" / "t" / "smoke"
    text = page.read_text(encoding="utf-8")
    assert "| change | paper | ours | difference (ours − paper) | reproduced? |" in text
    change = "| R@1: a → b | 50.0 → 60.0 (+10.0) | 41.0 → 38.5 (-2.5) | -12.5 | NO (0 of 2 seeds) |"
    assert change in text
    assert "| loss [a\\|b] | falls | rises | NO |" in text
    assert "| b | paper | 60 |\n| b | **ours** | **38.5 ± 0.7** |\n" in text
    assert "| b | ours − paper | -21.5 |" in text
    assert text.startswith("# Title\n\n- command: `uncollapse reproduce t --scale smoke`\n")
    assert text.endswith("\n\nA note.\n")
    with comma.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows[1]["by seed"] == "39.0000 38.0000"
    assert rows[2]["reproduced"] == "NO"
    assert made.pages[0].markdown() == text


def test_without_a_number_of_the_paper_there_is_no_difference():
    grid, changes = compared(None, (41.0, 43.0)).tables()
    assert changes.rows == [["R@1: a → b", "-", "41.0 → 42.0 (+1.0)", "-", "yes (2 of 2 seeds)"]]
    assert [row[:2] for row in grid.rows] == [
        ["a", "paper"],
        ["a", "ours"],
        ["a", "ours − paper"],
        ["b", "ours"],
    ]
    assert grid.strong == [1, 3]


def test_one_seed_has_no_spread():
    assert spread([3.0])[0] == 3.0
    assert math.isnan(spread([3.0])[1])
    assert math.isnan(spread([])[0])
