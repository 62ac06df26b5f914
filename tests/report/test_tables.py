"""Tables: long ones fold, numbers stand to the right, text of others stays text."""

from __future__ import annotations

from uncollapse._base.table import Cell, Table
from uncollapse.report.page import Page


def drawn(table: Table) -> str:
    """The table as a page shows it."""
    text = Page("run.html.j2", _CONTENT | {"made": table}).render()
    return text[text.index('<section id="made"') : text.index("</main>")]


_VERDICT = {"headline": "h", "tone": "good", "glyph": "", "missing": "gone", "logged": False}
_CONTENT = {
    "warnings": [], "skipped": [], "below": [], "races": [],
    "title": "t", "lead": "", "several": False, "verdict": _VERDICT, "curves": [],
    "events": None, "maps": [], "classes": [], "config": {"changed": {}, "every": {}},
    "neighbours": {"sheets": [], "missing": [], "judged": True, "lists": []},
}  # fmt: skip


def test_text_of_others_cannot_become_markup():
    rows = [["<script>"], [Cell("<img>", note="<hr>", style='"><b>')]]
    text = drawn(Table(["<i>"], rows, title="<u>"))
    for piece in ("<script>", "<img>", "<hr>", "<b>", "<u>", "<i>"):
        assert piece not in text
        assert piece.replace("<", "&lt;").replace(">", "&gt;") in text


def test_a_long_table_shows_its_first_rows_and_a_switch_for_the_rest():
    rows = [[f"row {i}", i] for i in range(20)]
    text = drawn(Table(["name", "n"], rows, first=5))
    assert text.count("<tr>") == 1 + 5
    assert text.count('<tr class="more">') == 15
    assert "Show all 20 rows" in text
    assert "checkbox" not in drawn(Table(["name", "n"], rows[:7], first=5))


def test_cells_sort_by_their_value_and_numbers_stand_to_the_right():
    text = drawn(Table(["a", "b"], [["x", Cell("12 %", 0.12)], ["y", None]], sortable=True))
    assert 'data-v="0.12"' in text
    assert '<th scope="col" class="n">b</th>' in text
    assert '<th scope="col">a</th>' in text


def test_a_bool_is_no_number():
    text = drawn(Table(["a", "b"], [["x", True], ["y", False]]))
    assert "<td>True</td>" in text


def test_a_run_of_defaults_says_so():
    page = Page("run.html.j2", _CONTENT | {"made": Table(["run"], [["a"]])})
    assert "All defaults." in page.render()


def test_a_long_name_may_be_broken_between_its_parts_and_stays_text():
    name = "p=2,k=4,positives=hard,<b>&_x/seed=0"
    shown = drawn(Table(["run"], [[name]]))
    assert "p=2,<wbr>k=4,<wbr>positives=hard,&lt;b&gt;&amp;_<wbr>x/<wbr>seed=0" in shown
    assert "<b>" not in shown
