"""Pages of the papers' items in the terminal."""

import io

from rich.console import Console

from uncollapse.cli.reproduce_tables import listing_table, show_page
from uncollapse.papers import Page, Table, get_item


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


def test_the_listing_says_what_each_scale_takes():
    assert get_item("table3").time_at("smoke") == "seconds"
    console = Console(file=io.StringIO(), width=200)
    console.print(listing_table())
    line = next(x for x in console.file.getvalue().splitlines() if x.startswith("table3"))
    assert "seconds" in line
    assert "hours, GPU" in line
