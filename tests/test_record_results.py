"""`tools/record_results.py`: pages to docs/results, photographs not, and the table of --list."""

import importlib.util
import shutil
from pathlib import Path

import pytest

from uncollapse.papers import read_recorded
from uncollapse.papers.items import Made, Request, Used, write_made

TOOL = Path(__file__).parents[1] / "tools" / "record_results.py"
CARS = Used("cars196", "Cars196: ...", True, "a trunk, 20 steps", [0, 1], {"cars196/a-s0": 65.0})


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("record_results", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make(out, item, scale, *used, private=()):
    folder = out / item / scale
    folder.mkdir(parents=True)
    files = [folder / f"{item}.{kind}" for kind in ("md", "csv", "png", "svg")]
    for file in files:
        file.write_text(f"![A title]({item}.png)\n{scale}\n")
    hidden = [file for file in files if file.suffix in private]
    write_made(Request(item, out, scale, used=[*used]), Made(files, private=hidden), 1.0)


def recorded(tool, tmp_path, *words):
    places = ["--results", str(tmp_path / "docs"), "--record", str(tmp_path / "r.csv")]
    tool.main([str(tmp_path / "out"), *words, *places])
    return read_recorded(tmp_path / "r.csv")


def test_the_largest_scale_is_published_and_recorded(tool, tmp_path):
    digits = Used("digits", "", False, "tiny", [0], {"x": 1.0})
    make(tmp_path / "out", "table2", "smoke", digits)
    make(tmp_path / "out", "table2", "laptop", CARS)
    make(tmp_path / "out", "fig8", "smoke", digits)
    found = recorded(tool, tmp_path)
    assert [*found] == ["fig8", "table2"]
    row = found["table2"]
    assert (row.scale, row.time, row.real) == ("laptop", "65 s", "yes")
    assert (found["fig8"].data, found["fig8"].real) == ("Optical digits (stand-in)", "no")
    docs = tmp_path / "docs" / "table2"
    assert sorted(path.name for path in docs.iterdir()) == ["table2.csv", "table2.md", "table2.png"]
    assert "laptop" in (docs / "table2.md").read_text()


def test_photographs_stay_and_the_page_says_how_to_draw_them(tool, tmp_path):
    make(tmp_path / "out", "eps-fig4", "laptop", CARS, private=[".png"])
    recorded(tool, tmp_path)
    docs = tmp_path / "docs" / "eps-fig4"
    assert not (docs / "eps-fig4.png").exists()
    page = (docs / "eps-fig4.md").read_text()
    assert "](eps-fig4.png)" not in page
    assert "`uncollapse reproduce eps-fig4 --scale laptop` draws `eps-fig4.png`" in page


def test_a_smaller_scale_does_not_replace_a_larger_one(tool, tmp_path):
    make(tmp_path / "out", "table2", "laptop", CARS)
    recorded(tool, tmp_path)
    shutil.rmtree(tmp_path / "out")
    make(tmp_path / "out", "table2", "smoke", CARS)
    make(tmp_path / "out", "table6", "smoke", CARS)
    found = recorded(tool, tmp_path)
    assert (found["table2"].scale, found["table6"].scale) == ("laptop", "smoke")
    assert "laptop" in (tmp_path / "docs" / "table2" / "table2.md").read_text()


def test_only_the_items_that_are_named_are_taken(tool, tmp_path):
    for item in ("table2", "table6"):
        make(tmp_path / "out", item, "laptop", CARS)
    assert [*recorded(tool, tmp_path, "table6")] == ["table6"]
    with pytest.raises(SystemExit, match="not made: fig1; made: table2, table6"):
        recorded(tool, tmp_path, "fig1")


def test_pages_of_earlier_versions_are_recorded_from_their_heads(tool, tmp_path):
    folder = tmp_path / "out" / "table5"
    folder.mkdir(parents=True)
    (folder / "table5.md").write_text(
        "# T\n\n- command: `uncollapse reproduce table5 --scale laptop`\n- seeds: 0, 1, 2\n"
        "- data: Omniglot: letters: train 9 images\n- network and training: conv2, 3 steps\n"
        "- time: 85 min of training\n- date: 2026-11-16\n\ncub200 is left out: no copy found.\n"
    )
    row = recorded(tool, tmp_path, "--from-pages")["table5"]
    assert (row.time, row.data, row.real) == ("85 min", "Omniglot, no CUB-200-2011", "part")
    assert (row.seeds, row.network, row.date) == ("3", "conv2", "2026-11-16")
    assert not (tmp_path / "docs").exists()


def test_holds_and_the_page_of_claims_are_those_of_the_tables(tool, tmp_path):
    for item, scale, verdicts in (
        ("table2", "laptop", ("yes (2 of 2 seeds)", "NO (0 of 2 seeds)")),
        ("table6", "laptop", ("NO (0 of 2 seeds)", "not judged")),
        ("fig8", "smoke", ("NO", "yes")),
        ("eps-fig6", "laptop", ("yes", "")),
    ):
        make(tmp_path / "out", item, scale, CARS)
        rows = [f"a: method {n},R@{n},1,2,,{verdict},," for n, verdict in enumerate(verdicts)]
        table = tmp_path / "out" / item / scale / f"{item}.csv"
        head = "what,metric,paper,ours,std,reproduced,by seed,before training"
        table.write_text("\n".join([head, *rows]) + "\n")
    found = recorded(tool, tmp_path)
    assert {name: row.holds for name, row in found.items()} == {
        "fig8": "not judged at this scale",
        "table2": "in part",
        "table6": "no",
        "eps-fig6": "yes",
    }
    page = (tmp_path / "docs" / "claims.md").read_text()
    assert "Of 3 items: in part 1, no 1, yes 1." in page
    assert "- `table2`\n    - a: method 1: R@1\n" in page
    assert "| **no** | 0 of 1; 1 not judged | laptop, 2 seeds |" in page
    assert recorded(tool, tmp_path) == found
