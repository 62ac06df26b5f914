"""Pages: safe text, one file, written whole; tables and the colours of all."""

import re

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from uncollapse._base.table import Cell, Table, number
from uncollapse.charts.marks import DARK, LIGHT, SERIES
from uncollapse.report import diagnose
from uncollapse.report.page import Page


def plain(title="t", **content):
    return Page("page.html.j2", {"title": title, **content})


def test_text_of_others_is_neither_markup_nor_a_template():
    text = plain("<script>{{ 7 * 7 }}", lead="{% include 'page.css' %}{# gone #}").render()
    assert "<h1>&lt;script&gt;{{ 7 * 7 }}</h1>" in text
    assert "{% include &#39;page.css&#39; %}{# gone #}" in text
    with pytest.raises(UndefinedError, match="title"):  # a name that nobody gave
        Page("page.html.j2", {"lead": ""}).render()


def test_an_empty_section_is_left_out_and_not_linked_to():
    content = {"title": "t", "chart": Markup("<svg></svg>"), "table": Table(["a"], [["x"]])}
    text = Page("verification.html.j2", content).render()
    assert re.findall(r"<h2 [^>]*><span>(.*?)</span>", text) == ["ROC", "Figures"]
    assert re.findall(r'<li><a href="(.*?)">', text) == ["#roc", "#figures"]
    bare = diagnose([[0.0], [1.0], [2.0]]).page().render()
    assert 'id="distances"' in bare
    for anchor in ("cone", "classes", "scores", "neighbours"):
        assert f"#{anchor}" not in bare
        assert f'id="{anchor}"' not in bare


def test_numbers_are_written_as_people_write_them():
    values = (0.0, -0.25, float("nan"), float("-inf"), 999.96)
    assert [*map(number, values)] == ["0", "-0.25", "–", "−∞", "1,000"]


def luminance(color):
    """Of WCAG 2: https://www.w3.org/TR/WCAG21/#dfn-relative-luminance."""
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [False, True])
def test_text_and_marks_stand_out_from_their_ground(dark):
    # The page as it is written: each name's last value of the two themes.
    style = plain().render().split("<style>")[1].split("</style>")[0]
    blocks = re.findall(r"(dark\)\s*{\s*)?:root {(.*?)}", style, re.DOTALL)
    found = [
        re.findall(r"--(\w+): (#\w{6})", rules) for head, rules in blocks if bool(head) == dark
    ]
    colours = dict(pair for rules in found for pair in rules)
    assert colours.items() >= (DARK if dark else LIGHT).items()
    needed = dict.fromkeys(("ink", "soft", "link", "good", "warn", "bad"), 4.5)
    needed |= {f"s{i}": 3.0 for i in range(SERIES)}
    for ground in ("card", "page"):
        for name, least in needed.items():
            pair = sorted(luminance(colours[each]) for each in (name, ground))
            assert (pair[1] + 0.05) / (pair[0] + 0.05) >= least, (name, ground)


# Tables.


def drawn(table):
    """The table as a page shows it."""
    text = Page("run.html.j2", _CONTENT | {"made": table}).render()
    return text[text.index('<section id="made"') : text.index("</main>")]


_VERDICT = {"headline": "h", "tone": "good", "glyph": "", "missing": "gone", "logged": False}
_CONTENT = {
    "warnings": [], "skipped": [], "below": [], "races": [],
    "title": "t", "lead": "", "several": False, "verdict": _VERDICT, "curves": [],
    "events": None, "maps": [], "classes": [],
    "config": {"changed": {}, "every": {}, "known": True},
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
    rows = [["x", Cell("12 %", 0.12), True], ["y", None, False]]
    text = drawn(Table(["a", "b", "c"], rows, sortable=True))
    assert "<td>True</td>" in text  # a bool is no number
    assert 'data-v="0.12"' in text
    assert '<th scope="col" class="n">b</th>' in text
    assert '<th scope="col">a</th>' in text


def test_a_run_of_defaults_says_so():
    page = Page("run.html.j2", _CONTENT | {"made": Table(["run"], [["a"]])})
    assert "All defaults." in page.render()


def test_a_long_name_may_be_broken_between_its_parts_and_stays_text():
    name = "p=2,k=4,positives=hard,<b>&_x/seed=0"
    shown = drawn(Table(["run"], [[name]]))
    assert "p=2,<wbr>k=4,<wbr>positives=hard,&lt;b&gt;&amp;_<wbr>x/<wbr>seed=0" in shown
