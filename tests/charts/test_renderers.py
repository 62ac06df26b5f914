"""Every mark and every chart as SVG and as PNG: well-formed, not blank, and in its place."""

import io
import shutil
import subprocess
from dataclasses import replace
from functools import partial
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from support.errors import refused
from uncollapse import charts as c
from uncollapse.charts import Chart, Entry, Series, curves, heatmap, png, save, scatter, svg
from uncollapse.charts import marks as m
from uncollapse.charts.chart import sheet
from uncollapse.charts.marks import DARK, LIGHT, Group, Line, Picture, Points, Rect, Text
from uncollapse.charts.plots import _names_on_map
from uncollapse.health.verdict import Histogram

RED = io.BytesIO()
Image.new("RGB", (8, 8), "#b3261e").save(RED, "PNG")
MARKS = {
    "area": m.Polyline(
        ((20, 20), (90, 30), (50, 80)), "s2", closed=True, fill="s2", fill_opacity=0.4
    ),
    "arrow": m.Line((20, 80), (90, 20), "bad", 2.0, arrow=True),
    "disc": m.Points(((50, 50),), "circle", "s4", 8.0, 0.7, edge="ink"),
    **{f"{kind} points": m.Points(((30, 30), (70, 30), (50, 50), (30, 70), (70, 70)), kind, "s5", 2)
       for kind in m.MARKERS},
    "points with tips": m.Points(((30, 30), (70, 70)), "diamond", "s6", 2, tips=("a", "b")),
    "edged points": m.Points(((50, 50),), "star", "s0", 4, edge="ink"),
    "text": m.Text(20, 55, "Words 0.25", 16),
    "text at its end": m.Text(90, 55, "bold", 18, "ink", "end", bold=True, halo=True),
    "turned text": m.Text(50, 50, "turned", 16, "ink", "middle", turn=-90),
    "picture": m.Picture(20, 20, 50, 60, RED.getvalue(), "a red square"),
    "faint group": m.Group(
        (m.Points(((40, 50), (60, 50)), "circle", "bad", 6.0), m.Rect(45, 45, 10, 10, "bad")),
        opacity=0.4,
    ),
    "hatch": m.hatch(20, 20, 60, 60, "ink"),
    "brace": m.brace(20, 80, 60, 20),
}  # fmt: skip


def charts():
    rng, steps = np.random.default_rng(0), np.arange(60)
    values = [np.exp(-steps / (9 + 4 * i)) + 0.1 * i for i in range(4)]
    lines = [c.Series(f"run {i}", list(steps), list(y)) for i, y in enumerate(values)]
    banded = [
        c.Series(str(y[0]), list(steps), list(y), list(y - 0.05), list(y + 0.05)) for y in values
    ]
    flags = {20: "shrinking", 22: "rolled back", 45: "healthy"}
    events = [c.Event(at, str(i), text) for i, (at, text) in enumerate(flags.items(), 1)]
    labels = np.repeat(np.arange(9), 30)
    plane = rng.normal(size=(9, 2))[labels] + 0.3 * rng.normal(size=(270, 2))
    x, y = c.area()
    axes = c.Axes(c.Scale(1.0, 1000.0, *x, log=True), c.Scale(-100.0, 100.0, *y))
    own = c.Chart(
        "Own axes",
        "a hatched stripe, error bars and names",
        (
            axes.columns(10, 100, "bad"),
            m.hatch(axes.x(10), axes.y.end, axes.x(100) - axes.x(10), 166, "bad"),
            *axes.frame("batch size", x_ticks={2.0**i: str(2**i) for i in range(10)}),
            axes.inside(axes.line([1, 1000], [-300, 300], "s0", dash=(7, 4))),
            *(axes.error_bar(x, -10, 10, "s1") for x in (3, 30, 300)),
            m.Points(axes.places([3, 30, 300], [0, 0, 0]), "diamond", "s1", tips=["a", "b", "c"]),
            axes.across(-50),
            *_names_on_map(["left", "right"], [(150, 100), (152, 101)]),
        ),
        legend=(c.Entry("dashed", (m.Line((1, 7), (29, 7), "s0", 2, (7, 4)),)),),
    )
    loss = c.curves("Loss", lines, events=events, note="of each run")
    within, between = (Histogram((0.0, 1.0, 2.0, 3.0), counts) for counts in ((5, 9, 1), (1, 3, 9)))
    return {
        "curves": loss,
        "banded": c.curves("R@1", banded, y_label="R@1 (%)", x_label="epoch", log=False),
        "log": c.curves("Diameter", [c.Series("a", list(steps), list(10.0 ** (-steps / 9)))]),
        "percent": c.curves("Recall", lines[:2], percent=True),
        "bars": c.bars("Spectrum", [0.7, 0.2, 0.08, 0.02], x_label="axis", split=(2, "90 % in 2")),
        "histogram": c.histogram("Distances", {"a": within, "b": between}, x_label="distance"),
        "heatmap": c.heatmap(
            "Risk", [2, 4, 8], [4, 8, 16, 32], rng.random((3, 4)).tolist(), row_label="P",
            column_label="K", crossed=[[False, True] * 2] * 3,
        ),
        "scatter": c.scatter("Map", plane, labels, note="two principal axes"),
        "panels": c.panels("Both", [loss, own], columns=2, note="side by side", legend=loss.legend),
        "own": own,
        "empty": c.empty("Nothing", "There is nothing to draw."),
    }  # fmt: skip


CHARTS = charts() | {
    f"mark: {name}": Chart("", name, (mark,), 100, 100) for name, mark in MARKS.items()
}
HOSTILE = "<script>alert('x')</script> ]]> \" ' & \x00 \x1b \ud800 \uffff --> </text>"
NAMED = {
    "names of series": curves("loss", [Series(n, [0, 1], [1.0, 2.0]) for n in (HOSTILE, "b")]),
    "names of classes": scatter("map", np.eye(2), np.array([HOSTILE[:30], "b"])),
    "names of rows": heatmap("h", [HOSTILE], [HOSTILE], [[1]], row_label=HOSTILE, column_label=""),
}


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
        (Picture(10, 10, 80, 40, RED.getvalue()), (10, 10, 90, 50)),
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


@pytest.mark.parametrize("name", ["curves", "histogram", "heatmap", "scatter", *NAMED])
def test_hostile_text_stays_text(name):
    plain = (CHARTS | NAMED)[name]
    hostile = replace(
        plain,
        title=HOSTILE,
        note=HOSTILE,
        description=HOSTILE,
        legend=(*plain.legend, Entry(HOSTILE, ())),
        marks=(*plain.marks, Text(5, 5, HOSTILE, tip=HOSTILE), Points(((1, 1),), tips=(HOSTILE,))),
        kind='"><script>',
    )
    for text in (svg(hostile), hostile.__html__()):
        root = ElementTree.fromstring(text)
        assert not [e for e in root.iter() if e.tag.rpartition("}")[2] == "script"]
        assert "<script>alert('x')</script> ]]>" in "".join(root.itertext())
    assert png(hostile)[:4] == b"\x89PNG"


def test_a_drawing_is_described_and_a_file_brings_its_colours_light_and_dark():
    text, page = svg(CHARTS["curves"]), CHARTS["curves"].__html__()
    for name, color in LIGHT.items():
        assert f"--{name}: {color};" in text
        assert f"--{name}: {DARK[name]};" in text
    assert "<style" not in page
    root = ElementTree.fromstring(page).find("svg")
    assert root.get("role") == "img"
    names = [e.get("id") for e in root if e.tag in ("title", "desc")]
    assert names == root.get("aria-labelledby").split() != []


def test_the_same_chart_is_the_same_file(tmp_path):
    chart = replace(CHARTS["scatter"], title="var(--nothing)")  # a word, not a color
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
    from PIL import ImageFont

    words = Chart("", "words", (Text(20, 50, "Words 0.25", 16, "ink", bold=True),), 160, 80)
    bare = partial(resvg_py.svg_to_bytes, skip_system_fonts=True)
    monkeypatch.setattr(resvg_py, "svg_to_bytes", bare)
    assert (np.asarray(image(words)).min(axis=2) < 128).sum() > 500
    monkeypatch.setattr(ImageFont, "load_default", lambda size: ImageFont.ImageFont())
    with pytest.raises(RuntimeError, match="no font for the words of a PNG"):
        png(CHARTS["bars"])


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
