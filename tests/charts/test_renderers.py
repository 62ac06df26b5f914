"""Every mark and every chart as SVG and as PNG: well-formed, not blank, and in its place."""

import io
import shutil
import subprocess
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from charts.examples import MARKS, charts, picture_bytes
from support.errors import refused
from uncollapse.charts import Chart, Entry, Series, curves, heatmap, png, save, scatter, svg
from uncollapse.charts.chart import sheet
from uncollapse.charts.marks import DARK, LIGHT, Group, Line, Picture, Points, Rect, Text

CHARTS = charts() | {
    f"mark: {name}": Chart("", name, (mark,), 100, 100) for name, mark in MARKS.items()
}
HOSTILE = "<script>alert('x')</script> ]]> \" ' & \x00 \x1b \ud800 \uffff --> </text>"


def image(chart, scale=2.0):
    return Image.open(io.BytesIO(png(chart, scale))).convert("RGB")


def ink(picture):
    """Left, top, right, bottom of what is not paper, as shares of the picture."""
    dark = np.asarray(picture.convert("RGB")).min(axis=2) < 250
    rows, columns = np.nonzero(dark.any(axis=1))[0], np.nonzero(dark.any(axis=0))[0]
    edges = np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1], float)
    return edges / np.array([*picture.size, *picture.size])


def box_of(mark, width=100, height=100):
    """The edges of the ink of one mark, in its own units."""
    picture = image(Chart("", "one mark", (mark,), width, height), 2.0)
    return ink(picture) * np.array([*picture.size, *picture.size]) / 2 - 12


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_is_well_formed_has_its_size_and_is_not_blank(name):
    chart, whole = CHARTS[name], sheet(CHARTS[name])
    for text in (svg(chart), chart.__html__()):
        assert chart.description in "".join(ElementTree.fromstring(text).itertext())
    box = ElementTree.fromstring(svg(chart)).get("viewBox")
    assert box == f"0 0 {whole.width:g} {whole.height:g}"
    pixels = np.asarray(image(chart, 1.5))
    assert pixels.shape[:2] == (np.ceil(1.5 * whole.height), np.ceil(1.5 * whole.width))
    assert (pixels.min(axis=2) < 240).mean() > 0.001
    assert (pixels == 255).all(axis=2).mean() > 0.2


@pytest.mark.parametrize(
    ("mark", "box"),
    [
        (Rect(10, 20, 30, 40, "s0"), (10, 20, 40, 60)),
        (Points(((50, 50),), "circle", "s1", 5.0), (35, 35, 65, 65)),
        (Line((10, 50), (90, 50), "ink", 4.0), (8, 48, 92, 52)),  # its ends are round
        (Points(((50, 50),), "square", size=5.0), (36, 36, 64, 64)),
        (Picture(10, 10, 80, 40, picture_bytes()), (10, 10, 90, 50)),
        (Group((Rect(0, 0, 30, 30, "s0"),), 40, 30), (40, 30, 70, 60)),
        (Group((Rect(0, 0, 99, 99, "s0"),), clip=(20, 30, 10, 20)), (20, 30, 30, 50)),
    ],
)
def test_pixels_stand_where_the_mark_says(mark, box):
    assert box_of(mark) == pytest.approx(box, abs=1.0)


def test_words_end_begin_and_turn_where_they_say():
    def box(**options):
        return box_of(Text(100, 60, "words", 16, "ink", **options), 200, 120)

    start, middle, end = (box(anchor=anchor) for anchor in ("start", "middle", "end"))
    assert start[0] == pytest.approx(100, abs=2)
    assert end[2] == pytest.approx(100, abs=2)
    assert (middle[0] + middle[2]) / 2 == pytest.approx(100, abs=2)
    up = box(anchor="middle", turn=-90)
    assert up[2] <= 101  # the baseline is at x, the letters to its left
    assert up[3] - up[1] == pytest.approx(middle[2] - middle[0], abs=2)


def test_a_faint_group_is_one_shade_where_its_marks_overlap():
    both = Group((Points(((40, 50), (60, 50)), "circle", "bad", 6.5),), opacity=0.4)
    pixels = np.asarray(image(Chart("", "two discs", (both,), 100, 100)))
    assert (pixels[124, 2 * 62] == pixels[124, 2 * 45]).all()
    assert (pixels[124, 2 * 62] != 255).any()


@pytest.mark.parametrize("name", ["curves", "histogram", "heatmap", "scatter"])
def test_hostile_text_stays_text(name):
    plain = CHARTS[name]
    hostile = replace(
        plain,
        title=HOSTILE,
        note=HOSTILE,
        description=HOSTILE,
        legend=(Entry(HOSTILE, ()),),
        marks=(*plain.marks, Text(5, 5, HOSTILE, tip=HOSTILE), Points(((1, 1),), tips=(HOSTILE,))),
        kind='"><script>',
    )
    for text in (svg(hostile), hostile.__html__()):
        root = ElementTree.fromstring(text)
        assert not [e for e in root.iter() if e.tag.rpartition("}")[2] == "script"]
        assert "<script>alert('x')</script> ]]>" in "".join(root.itertext())
    assert png(hostile)[:4] == b"\x89PNG"


def test_hostile_names_of_series_and_classes_stay_text():
    for chart in (
        curves("loss", [Series(HOSTILE, [0, 1], [1.0, 2.0]), Series("b", [0, 1], [1.0, 2.0])]),
        scatter("map", np.eye(2), np.array([HOSTILE[:30], "b"])),
        heatmap("h", [HOSTILE], [HOSTILE], [[1.0]], row_label=HOSTILE, column_label="c"),
    ):
        assert "<script" not in svg(chart)
        ElementTree.fromstring(svg(chart))
        ElementTree.fromstring(chart.__html__())


def test_a_drawing_is_named_and_described_for_those_who_do_not_see_it():
    root = ElementTree.fromstring(CHARTS["curves"].__html__()).find("svg")
    assert root.get("role") == "img"
    named = (root.get("aria-labelledby") or "").split()
    assert [e.get("id") for e in root if e.tag in ("title", "desc")] == named


def test_a_file_brings_its_colours_light_and_dark_and_a_page_gives_them():
    text = svg(CHARTS["curves"])
    for name, colour in LIGHT.items():
        assert f"--{name}: {colour};" in text
        assert f"--{name}: {DARK[name]};" in text
    assert "<style" not in CHARTS["curves"].__html__()


def test_the_same_chart_is_the_same_file(tmp_path):
    chart = CHARTS["scatter"]
    for suffix in (".svg", ".png"):
        one, two = (save(chart, tmp_path / f"{k}{suffix}").read_bytes() for k in "ab")
        assert one == two
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.png", "a.svg", "b.png", "b.svg"]


@pytest.mark.parametrize(
    ("field", "draw"),
    [
        ("path", lambda folder: save(CHARTS["bars"], folder / "chart.pdf")),
        ("scale", lambda folder: png(CHARTS["bars"], 0.0)),
        ("kind", lambda folder: Points(((0, 0),), "hexagon")),
        ("tips", lambda folder: Points(((0, 0),), tips=("a", "b"))),
        ("anchor", lambda folder: Text(0, 0, "x", anchor="left")),
    ],
)
def test_what_cannot_be_drawn_is_refused(tmp_path, field, draw):
    with refused(field):
        draw(tmp_path)


def test_words_are_drawn_on_a_machine_that_has_no_font(monkeypatch):
    import resvg_py

    plain = resvg_py.svg_to_bytes
    words = Chart("", "words", (Text(20, 50, "Words 0.25", 16, "ink", bold=True),), 160, 80)

    def bare(**options):
        return plain(**options, skip_system_fonts=True)

    monkeypatch.setattr(resvg_py, "svg_to_bytes", bare)
    dark = np.asarray(image(words)).min(axis=2) < 128
    assert dark.sum() > 500


def test_without_any_font_a_png_is_refused(monkeypatch):
    from PIL import ImageFont

    monkeypatch.setattr(ImageFont, "load_default", lambda size: ImageFont.ImageFont())
    with pytest.raises(RuntimeError, match="no font for the words of a PNG"):
        png(CHARTS["bars"])


def test_a_word_that_looks_like_a_colour_of_the_theme_stays_a_word():
    assert png(Chart("var(--nothing)", "none", ()))[:4] == b"\x89PNG"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")
def test_a_browser_draws_the_svg_where_the_png_has_it(tmp_path):
    """One page of all drawings, each in a frame of its own: the ink begins and ends alike."""
    names = [name for name in CHARTS if "text" not in name]  # another font, another width
    wide, tall = 1000, 900
    body = "".join(
        f'<div style="position:absolute;left:0;top:{i * tall}px">{svg(CHARTS[n], pixels=1)}</div>'
        for i, n in enumerate(names)
    )
    page, shot = tmp_path / "all.html", tmp_path / "all.png"
    page.write_text(f'<!doctype html><meta charset="utf-8"><body style="margin:0">{body}', "utf-8")
    command = [
        "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--blink-settings=preferredColorScheme=1", f"--user-data-dir={tmp_path / 'profile'}",
        f"--window-size={wide},{tall * len(names)}", f"--screenshot={shot}", page.as_uri(),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    whole = Image.open(shot)
    for i, name in enumerate(names):
        ours = image(CHARTS[name], 1.0)
        theirs = whole.crop((0, i * tall, ours.width, i * tall + ours.height))
        assert ink(theirs) == pytest.approx(ink(ours), abs=0.03), name
