"""README and docs have the figures of the result files, and their pictures can be drawn again."""

import importlib.util
import re
import shutil
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from docs.pages import README, ROOT, shelf

pytestmark = pytest.mark.processes

_SPEC = importlib.util.spec_from_file_location("headlines", ROOT / "tools" / "headlines.py")
_TOOL = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_TOOL)
SENTENCES, CELLS, place = _TOOL.SENTENCES, _TOOL.CELLS, _TOOL.place

TABLE = "docs/results/table3/table3.csv"
MEASURED = re.compile(
    r"\d[\d.,]*(?: to [\d.]+)?\s?%|\b\d+ of \d+|\bAUC\D{1,20}[\d.]+|R@1\D{1,40}\d+\.\d"
    r"|\d\.\d ±|\b\d+x\b|\b\d+ (?:s|MB|ms|GB)\b|\b0\.\d\d\d\b"
)
SETTINGS = {
    "README.md": ["Are all cosines 0.99"],
    "docs/compare.md": ["accepts 0.1 % of pairs", "kept_neighbours<0.5"],
    "docs/files.md": [
        "left out if at most 5 % of the rows",
        "less than 1 % of the usual distance",
        "of at least 5 % of the rows",
    ],
    "docs/forecast.md": ["would call `shrinking`, 25 %"],
    "docs/guard.md": ["or 512 MB"],
    "docs/watch.md": ["or 512 MB"],
}
WORDS = ("batch-hard", "easy positives", "scale-free", "R@1 on letters never seen")


def headlines(*words):
    command = [sys.executable, str(ROOT / "tools" / "headlines.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_pages_have_the_figures_of_the_result_files():
    assert headlines("--check").returncode == 0


def test_another_figure_in_a_page_or_in_the_results_is_seen_and_written(tmp_path):
    for name in {*SENTENCES, *(f"docs/{cell.page}" for cell in CELLS.values()), TABLE}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    readme = tmp_path / "README.md"
    before = readme.read_text(encoding="utf-8")
    readme.write_text(before.replace("**0.996**", "**0.999**"), encoding="utf-8")
    words = ("--root", str(tmp_path))
    assert "README.md" in headlines("--check", *words).stderr
    assert headlines(*words).returncode == 0
    assert readme.read_text(encoding="utf-8") == before
    result = tmp_path / TABLE
    result.write_text(result.read_text().replace("70.1037", "71.1037"), encoding="utf-8")
    assert "results: README.md;" in headlines("--check", *words).stderr


@pytest.mark.parametrize("page", [README, *shelf("Guides")], ids=lambda page: page.stem)
def test_a_measured_figure_is_one_of_the_headlines(page):
    """Others are limits, settings and definitions: SETTINGS has the words around them."""
    text = page.read_text(encoding="utf-8")
    name = str(page.relative_to(ROOT))
    spans = [place(text, sentence).span() for sentence in SENTENCES.get(name, ())]
    code = r"```.*?```|`[^`\n]*`|^>.*?$|^    .*?$|\]\([^)]*\)|<[^>]*>"
    spans += [match.span() for match in re.finditer(code, text, re.DOTALL | re.MULTILINE)]
    for words in SETTINGS.get(name, ()):
        assert words in text, words
        spans.append((text.index(words), text.index(words) + len(words)))
    free = [
        match[0]
        for match in MEASURED.finditer(text)
        if not any(start < match.end() and match.start() < end for start, end in spans)
    ]
    assert free == []


@pytest.mark.parametrize(
    ("page", "picture", "count"),
    [(README, "collapse-moving.svg", 5), (ROOT / "docs/index.md", "collapse.svg", 4)],
    ids=["README", "index"],
)
def test_a_picture_is_described_by_its_own_figures(page, picture, count):
    words = re.search(r"(?:Two|Three) runs from the same weights[^\"\]]*", page.read_text("utf-8"))[
        0
    ]
    drawn = (ROOT / "docs/img" / picture).read_text(encoding="utf-8").replace("\xa0", " ")
    figures = re.findall(r"\d+ %|0\.\d{4}|step \d+|R@1 \d+(?! %)\b", words)
    assert len(figures) == count
    assert all(figure in drawn for figure in figures)


def drawn_and_kept(script, kept, tmp_path):
    picture = tmp_path / "picture.svg"
    command = [sys.executable, ROOT / "tools" / script, "--steps", "2", "--out", picture]
    subprocess.run(command, check=True, capture_output=True)
    return [path.read_text(encoding="utf-8") for path in (picture, ROOT / "docs/img" / kept)]


@pytest.mark.night
def test_the_picture_is_drawn_by_its_script(tmp_path):
    for text in drawn_and_kept("collapse_picture.py", "collapse.svg", tmp_path):
        assert [words for words in WORDS if words not in text] == []


@pytest.mark.night
def test_the_moving_picture_is_drawn_by_its_script(tmp_path):
    for text in drawn_and_kept("moving_picture.py", "collapse-moving.svg", tmp_path):
        root = ElementTree.fromstring(text)
        moving = root.findall(".//{*}animateTransform")
        assert len(moving) == 2 * 6 * 20  # two runs, six letters, twenty drawings
        times = [float(time) for time in moving[0].get("keyTimes").split(";")]
        assert times == sorted(times)
        assert (times[0], times[-1]) == (0.0, 1.0)
        # Without animation each run shows one set of figures: those of its end.
        lasting = [t for t in root.findall(".//{*}text") if t.find("{*}tspan") is not None]
        assert sum(t.get("display") is None for t in lasting) == 2
