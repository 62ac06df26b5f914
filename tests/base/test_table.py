"""Tables on terminals of any width, on pages and in Markdown: nothing is cut."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from uncollapse._base.table import Cell, Table, wrapped_for

WORDS = st.text("abcdefgh", min_size=1, max_size=9)
CELLS = st.lists(WORDS, max_size=6).map(" ".join)


def printed(table, width):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(table)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=4), st.integers(45, 120))
def test_words_stay_whole_and_lines_fit_wherever_the_widest_words_have_room(rows, width):
    lines = printed(Table(["key", "c", "c"], rows), width)
    assert max(map(len, lines)) <= width
    seen = {word for line in lines for word in line.split()}
    assert {word for row in rows for cell in row for word in cell.split()} <= seen


@given(st.lists(st.integers(1, 12), min_size=1, max_size=9), st.integers(17, 100))
def test_numbers_that_do_not_fold_are_all_shown_in_parts_if_need_be(sizes, width):
    cells = ["9" * size for size in sizes]
    lines = printed(Table(["run", *(f"m{i}" for i in range(len(cells)))], [["a", *cells]]), width)
    assert max(map(len, lines)) <= width
    words = [word for line in lines for word in line.split()]
    assert [word for word in words if word[0] == "9"] == cells
    assert [word for word in words if word[0] == "m"] == [f"m{i}" for i in range(len(cells))]


def test_numbers_stand_to_the_right_and_texts_to_the_left():
    rows = [["a", "0.5", "high"], ["long", "12.25", "–"], ["b", "–", "low"]]
    assert printed(Table(["run", "loss", "risk"], rows), 40) == [
        "run    loss  risk",
        "─" * 17,
        "a       0.5  high",
        "long  12.25  –",
        "b         –  low",
    ]


def test_each_part_of_a_table_that_is_too_wide_has_the_keys():
    table = Table(["run", "seed", "first", "second"], [["a", "1", "1234567890", "high"]], keys=2)
    assert [line.split() for line in printed(table, 22) if "─" not in line] == [
        ["run", "seed", "first"],
        ["a", "1", "1234567890"],
        [],
        ["run", "seed", "second"],
        ["a", "1", "high"],
    ]


def test_a_cell_keeps_its_style_and_brackets_are_text():
    table = Table(["a [b]"], [[Cell("high", style="red")], ["[x]"]])
    console = Console(file=io.StringIO(), width=40, force_terminal=True, color_system="standard")
    console.print(table)
    shown = console.file.getvalue()
    assert "\x1b[31mhigh" in shown
    assert "a [b]" in shown
    assert "[x]" in shown


@given(st.lists(WORDS, min_size=1, max_size=30), st.integers(10, 60))
def test_a_wrapped_line_has_the_same_words_and_fits(words, width):
    text = "  " + " ".join(words)
    lines = wrapped_for(width, text).split("\n")
    assert all(line.startswith("  ") and len(line) <= width + 1 for line in lines)
    assert [word for line in lines for word in line.split()] == words


@pytest.mark.parametrize("width", [5, 12])
def test_a_terminal_too_narrow_for_anything_still_gets_every_letter(width):
    lines = printed(Table(["name", "number"], [["abcdef", "123456789"]]), width)
    letters = "".join(lines).replace(" ", "")
    assert all(letter in letters for letter in "abcdef123456789")


def test_wide_characters_count_twice():
    assert "日本語" in printed(Table(["名前", "n"], [["日本語", "1"]]), 9)[-1]
