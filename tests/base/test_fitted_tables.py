"""Tables on terminals of any width: nothing is cut while there is another way."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from uncollapse._base.table import Column, FittedTable, folded, wrapped_for

WORDS = st.text("abcdefgh", min_size=1, max_size=9)
CELLS = st.lists(WORDS, max_size=6).map(" ".join)


def printed(table, width):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(table)
    return console.file.getvalue().splitlines()


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=4), st.integers(32, 120))
def test_words_stay_whole_and_lines_fit_wherever_the_widest_words_have_room(rows, width):
    columns = [Column("key", key=True, folds=True), *[Column("c", folds=True)] * 2]
    lines = printed(FittedTable(columns, list(rows)), width)
    assert max(map(len, lines)) <= width
    seen = {word for line in lines for word in line.replace("│", " ").split()}
    assert {word for row in rows for cell in row for word in cell.split()} <= seen


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=9),
    st.integers(16, 100),
    st.booleans(),
)
def test_numbers_that_do_not_fold_are_all_shown_in_parts_if_need_be(sizes, width, boxed):
    cells = ["9" * size for size in sizes]
    columns = [Column("run", key=True), *(Column(f"m{i}", right=True) for i in range(len(cells)))]
    lines = printed(FittedTable(columns, [["a", *cells]], boxed=boxed), width)
    assert max(map(len, lines)) <= width
    seen = [word for line in lines for word in line.replace("│", " ").split() if word[0] == "9"]
    assert seen == cells
    heads = [word for line in lines for word in line.replace("┃", " ").split() if word[0] == "m"]
    assert heads == [f"m{i}" for i in range(len(cells))]


def test_a_box_then_no_box_then_fewer_columns():
    columns = [Column("name"), Column("middling", spare=1), Column("risk")]
    table = FittedTable(columns, [["a", "1234567890", "high"]])
    assert "│ a    │ 1234567890 │ high │" in printed(table, 80)
    assert printed(table, 22)[1] == "a     1234567890  high"
    narrow = printed(table, 19)
    assert "│ a    │ high │" in narrow
    assert " ".join(" ".join(narrow).split()).endswith("no room at 19 columns for: middling")


def test_sentences_go_under_their_row_where_there_is_no_room_beside():
    columns = [Column("name"), Column("what", folds=True, below=True, lead="it is ", least=20)]
    table = FittedTable([*columns, Column("real")], [["a", "a sentence of some length", "yes"]])
    assert printed(table, 60)[3] == "│ a    │ a sentence of some length │ yes  │"
    assert printed(table, 30) == [
        "name  real",
        "a     yes",
        "    it is a sentence of some",
        "    length",
    ]


def test_a_path_is_broken_after_a_slash_before_it_is_broken_anywhere():
    columns = [Column("path", folds=True), Column("n", right=True)]
    rows = [["runs/a-long-name/of/things.html", "1"]]
    lines = printed(FittedTable(columns, rows, boxed=False), 20)
    assert lines[1:] == ["runs/a-long-name/  1", "of/things.html"]


def test_a_cell_keeps_its_style_and_brackets_are_text():
    table = FittedTable([Column("a [b]")], [[Text("high", style="red")], ["[x]"]])
    console = Console(file=io.StringIO(), width=40, force_terminal=True, color_system="standard")
    console.print(table)
    shown = console.file.getvalue()
    assert "\x1b[31mhigh" in shown
    assert "a [b]" in shown
    assert "[x]" in shown


def test_wide_characters_count_twice():
    assert folded("日本語 文字", 6) == ["日本語", "文字"]
    lines = printed(FittedTable([Column("名前", folds=True), Column("n")], [["日本語", "1"]]), 9)
    assert "日本語" in lines[-1]


@given(st.lists(WORDS, min_size=1, max_size=30), st.integers(10, 60))
def test_a_wrapped_line_has_the_same_words_and_fits(words, width):
    text = "  " + " ".join(words)
    lines = wrapped_for(width, text).split("\n")
    assert all(line.startswith("  ") and len(line) <= width + 1 for line in lines)
    assert [word for line in lines for word in line.split()] == words


@pytest.mark.parametrize("width", [1, 5, 12])
def test_a_terminal_too_narrow_for_anything_still_gets_every_letter(width):
    rows = [["abcdef", "123456789"]]
    columns = [Column("name", folds=True), Column("number", right=True)]
    lines = printed(FittedTable(columns, rows), width)
    letters = "".join(sorted("".join(lines).replace(" ", "")))
    for letter in "abcdef123456789":
        assert letter in letters


def test_a_first_column_of_sentences_stands_over_its_row():
    columns = [Column("change", folds=True, below=True, least=20), Column("paper"), Column("ours")]
    table = FittedTable(columns, [["from one method to another one", "1 → 2", "3 → 4"]])
    assert printed(table, 24) == [
        "    paper  ours",
        "from one method to",
        "another one",
        "    1 → 2  3 → 4",
    ]
