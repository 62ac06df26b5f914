"""The headline figures of the README and of the docs are those of docs/results."""

import importlib.util
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "headlines.py"
SPEC = importlib.util.spec_from_file_location("headlines", TOOL)
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)


@pytest.mark.parametrize("page", tool.PAGES, ids=lambda page: page.name)
def test_the_figures_of_a_page_are_those_recorded(page):
    text = page.read_text(encoding="utf-8")
    assert tool.MARK.search(text)
    assert tool.filled(text, tool.figures()) == text, "run python tools/headlines.py"


def test_a_figure_that_differs_is_written_again():
    text = "an AUC of <!--=forecast.probe-->0.5<!--/--> over <!--=forecast.runs-->3<!--/--> runs"
    known = {"forecast.probe": "0.996", "forecast.runs": "246"}
    assert "<!--=forecast.probe-->0.996<!--/-->" in tool.filled(text, known)
