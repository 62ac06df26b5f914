"""The page builder: safe text, one file, written whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from uncollapse.report.blocks import Cell, figures, table
from uncollapse.report.markup import Html, number
from uncollapse.report.page import Page
from uncollapse.report.style import CSS, SERIES


def test_text_of_others_cannot_become_markup():
    page = Page("<script>alert(1)</script>", "a & b")
    page.add("A & <b>", table(["<i>"], [["<script>"], [Cell("<img>")]], caption="<u>"))
    page.add("Numbers", figures({"<dt>": "<dd>"}))
    text = page.render()
    for piece in ("<script>alert", "<script><", "<img>", "<u>", "<i>", "A & <b>"):
        assert piece not in text
    assert "&lt;script&gt;alert(1)" in text


def test_an_empty_section_is_left_out_and_not_linked_to():
    page = Page("t")
    page.add("Nothing", Html(""))
    page.add("Something", Html("<p>x</p>"))
    assert [section.title for section in page.sections] == ["Something"]
    assert "Nothing" not in page.render()


def test_a_page_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    target = tmp_path / "new" / "page.html"
    Page("first").save(target)
    before = target.read_text(encoding="utf-8")

    def fail(self: Path, other: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        Page("second").save(target)
    assert target.read_text(encoding="utf-8") == before
    assert [p.name for p in target.parent.iterdir()] == ["page.html"]


def test_a_long_table_shows_its_first_rows_and_a_switch_for_the_rest():
    rows = [[f"row {i}", i] for i in range(20)]
    shown = table(["name", "n"], rows, first=5)
    assert shown.count("<tr>") == 1 + 5
    assert shown.count('<tr class="more">') == 15
    assert "Show all 20 rows" in shown
    assert "checkbox" not in table(["name", "n"], rows[:7], first=5)


def test_cells_sort_by_their_value_and_numbers_stand_to_the_right():
    shown = table(["a", "b"], [["x", Cell("12 %", 0.12)], ["y", None]], sortable=True)
    assert 'data-v="0.12"' in shown
    assert '<th scope="col" class="n">b</th>' in shown
    assert '<th scope="col">a</th>' in shown


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.0, "0"), (-0.25, "-0.25"), (float("nan"), "–"), (float("-inf"), "−∞"), (999.96, "1,000")],
)
def test_numbers_are_said_as_people_write_them(value: float, said: str):
    assert number(value) == said


def luminance(colour: str) -> float:
    """Of WCAG 2: https://www.w3.org/TR/WCAG21/#dfn-relative-luminance."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("dark", [False, True])
def test_text_and_marks_stand_out_from_their_ground(dark: bool):
    block = CSS.split(":root {")[1 + dark].split("}")[0]
    colours = dict(re.findall(r"--(\w+): (#\w{6})", block))
    needed = dict.fromkeys(("ink", "soft", "link", "good", "warn", "bad"), 4.5)
    needed |= {f"s{i}": 3.0 for i in range(SERIES)}
    for ground in ("card", "page"):
        for name, least in needed.items():
            pair = sorted(luminance(colours[each]) for each in (name, ground))
            assert (pair[1] + 0.05) / (pair[0] + 0.05) >= least, (name, ground)
