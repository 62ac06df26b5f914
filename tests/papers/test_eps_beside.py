import csv
import io
import math

import numpy as np
import pytest
from rich.console import Console

from uncollapse.papers import get_item, listing_table
from uncollapse.papers._beside import Beside, Claim, Score, about, spread
from uncollapse.papers._item import Item, Request
from uncollapse.papers.eps._maps import _apart


def table(paper, ours, base=(50.0, (40.0, 42.0))):
    scores = [Score("a", "R@1", base[0], base[1]), Score("b", "R@1", paper, ours, than="a")]
    return Beside("Title", scores)


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
    found = table(paper, ours)
    assert found.direction(found.scores[1]) == said
    assert found.direction(found.scores[0]) == ""


def test_a_miss_is_printed_and_saved_as_one(tmp_path):
    found = table(60.0, (39.0, 38.0))
    claim = Claim("loss [a|b]", "falls", "rises", False)
    found = Beside(found.title, found.scores, [claim], {"command": "`x`"}, ["A note."])
    page, comma = found.save(tmp_path / "new", "t")
    text = page.read_text(encoding="utf-8")
    assert "| b over a, R@1 | 60.0 to 50.0 (+10.0) | 38.5 to 41.0 (-2.5) | NO (0 of 2 se" in text
    assert "| loss [a\\|b] | falls | rises | NO |" in text
    assert "| b | **ours** | **38.5 ± 0.7** |" in text
    assert text.startswith("# Title\n\n- command: `x`\n")
    assert text.endswith("\n\nA note.\n")
    console = Console(file=io.StringIO(), width=120)
    console.print(found.render())
    assert console.file.getvalue().count("NO") == 2
    assert "loss [a|b]" in console.file.getvalue()
    with comma.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows[1]["by seed"] == "39.0000 38.0000"
    assert rows[2]["reproduced"] == "NO"


def test_one_seed_has_no_spread():
    assert spread([3.0])[0] == 3.0
    assert math.isnan(spread([3.0])[1])
    assert math.isnan(spread([])[0])


def test_the_command_names_what_was_asked_for(tmp_path):
    request = Request(tmp_path, 2, Console(), "laptop", seeds=5, weights=tmp_path / "w.pth")
    lines = about(request, "table1", seeds=[2, 3], seconds=130.0, data="digits", network="small")
    command = "uncollapse reproduce table1 --scale laptop --seed 2 --seeds 5 --weights w.pth"
    assert lines["command"] == f"`{command}`"
    assert lines["seeds"] == "2, 3"
    assert lines["time"].startswith("2 min of training")
    assert str(tmp_path) not in "".join(lines.values())


def test_the_listing_says_what_each_scale_takes():
    item = get_item("table3")
    assert item.time_at("smoke") == "seconds"
    assert Item("x", "y", "z", "now", lambda request: []).time_at("paper") == ""
    console = Console(file=io.StringIO(), width=200)
    console.print(listing_table())
    line = next(x for x in console.file.getvalue().splitlines() if x.startswith("table3"))
    assert "seconds" in line
    assert "hours, GPU" in line


def test_names_on_a_map_are_moved_apart_and_the_rest_stay():
    pytest.importorskip("matplotlib")
    middles = np.array([[0.0, 0.0], [0.0, 0.0], [0.1, 0.0], [9.0, 9.0]])
    placed = _apart(middles, np.array([1.0, 2.0]))
    gaps = np.linalg.norm((placed[:, None] - placed[None]) / [1.0, 2.0], axis=2)
    assert gaps[~np.eye(4, dtype=bool)].min() >= 0.99
    assert np.abs(placed[:3]).max() < 3.0
    np.testing.assert_array_equal(placed[3], middles[3])
