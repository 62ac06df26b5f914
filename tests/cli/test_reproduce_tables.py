"""Pages of the papers' items in the terminal."""

import io

from rich.console import Console

from uncollapse._base.table import Table
from uncollapse.cli.reproduce import listing_table, show_page
from uncollapse.papers import CATALOGUE, Page, get_item, read_recorded
from uncollapse.papers.items import Recorded


def printed(page, **options):
    console = Console(file=io.StringIO(), width=120, **options)
    show_page(console, page)
    return console.file.getvalue()


def test_a_page_is_printed_whole_and_brackets_are_text():
    verdicts = Table(["what", "reproduced?"], [["loss [a|b]", "NO"], ["c", "yes"]], verdict=1)
    scores = Table(["method", "R@1"], [["a", "1.0"]], title="A part", strong=[0])
    text = printed(Page("The title", [verdicts, scores], {"seeds": "0, 1"}, ["A note [x]."]))
    for words in ("The title", "loss [a|b]", "NO", "A part", "seeds: 0, 1", "A note [x]."):
        assert words in text


def test_a_miss_is_red_and_what_holds_is_green():
    rows = [["NO (0 of 2 seeds)"], ["yes"], ["true if"], ["not judged"]]
    text = printed(
        Page("", [Table(["v"], rows, verdict=0)]), color_system="standard", force_terminal=True
    )
    assert "\x1b[1;31mNO (0 of 2 seeds)" in text
    assert "\x1b[32myes" in text
    assert "\x1b[33mtrue if" in text
    assert "not judged" in text


def listed(width):
    console = Console(file=io.StringIO(), width=width)
    console.print(listing_table())
    return console.file.getvalue().splitlines()


def test_a_wide_listing_says_what_each_scale_takes():
    assert get_item("table3").time["smoke"] == "seconds"
    line = next(x for x in listed(200) if x.startswith("table3"))
    assert "seconds" in line
    assert "hours, GPU" in line


def test_the_listing_says_time_data_and_whether_it_was_real_at_80_columns(monkeypatch):
    rows = {
        "table5": Recorded("table5", "laptop", 5100.0, "Omniglot, no CUB-200-2011", "part", *"3xd"),
        "fig4": Recorded("fig4", "laptop", 2.8, "", "", "", "", "d"),
    }
    monkeypatch.setattr("uncollapse.papers.read_recorded", lambda: rows)
    lines = listed(80)
    assert max(map(len, lines)) <= 80
    words = " ".join(lines).split()
    assert {"name", "what", "needs", "scale", "took", "data", "used", "real"} <= set(words)
    for name, facts in {
        "table5": ["laptop", "85 min", "Omniglot, no", "CUB-200-2011", "part"],
        "fig4": ["laptop", "2.8 s", "none", "–"],
    }.items():
        starts = [i for i, line in enumerate(lines) if line.startswith(f"{name} ")]
        rows = " ".join(" ".join(lines[i : i + 2]) for i in starts)
        assert all(fact in rows for fact in facts), rows


def test_no_word_of_the_listing_is_cut_at_80_columns():
    lines = listed(80)
    words = {word for line in lines for word in line.split()}
    recorded = [one.data for one in read_recorded().values()]
    for item in CATALOGUE.values():
        assert {item.name, *item.summary.split(), *item.needs.split()} <= words
    assert {word for text in recorded for word in text.split()} <= words


def test_notes_of_a_table_stand_under_it():
    text = printed(Page("T", [Table(["a"], [["x"]], notes=["M ends below [it]."])], notes=["Last"]))
    assert text.index("x") < text.index("M ends below [it].") < text.index("Last")
