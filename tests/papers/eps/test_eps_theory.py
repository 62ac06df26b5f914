import csv
import io

import pytest
from rich.console import Console

from support.errors import refused
from uncollapse.cli.reproduce import show_page
from uncollapse.papers import get_item

pytestmark = pytest.mark.slow


def test_the_truth_table_is_printed_and_saved_whole(tmp_path):
    text = io.StringIO()
    made = get_item("claims-eps").run(tmp_path / "new")
    show_page(Console(file=text, width=200), made.pages[0])
    files = made.files
    assert [file.name for file in files] == ["claims-eps.md", "claims-eps.csv"]
    with files[1].open(encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert len(rows) == 14
    assert {len(row) for row in rows} == {5}
    # brackets are text here, not markup
    assert "[diam + α, dist − α]" in text.getvalue()
    assert files[0].read_text(encoding="utf-8").count("\n") == len(rows) + 1


def test_the_figures_are_written_as_png_and_svg(tmp_path):
    files = get_item("fig-noise").run(tmp_path, 0, "smoke").files
    assert sorted(file.name for file in files) == [
        "noise-crossing.png",
        "noise-crossing.svg",
        "noise-minimisers.png",
        "noise-minimisers.svg",
    ]
    assert all(file.stat().st_size > 10_000 for file in files)
    assert (tmp_path / "noise-crossing.png").read_bytes().startswith(b"\x89PNG")


def test_an_unknown_scale_is_named(tmp_path):
    with refused("scale"):
        get_item("fig-noise").run(tmp_path, 0, "huge")
