"""The charts: places and ticks, no point lost, readable without colour, described in words."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncollapse.health import Histogram
from uncollapse.report.charts import Event, Series, bars, curves, heatmap, histogram, scatter
from uncollapse.report.charts.axes import Scale

finite = st.floats(-1e12, 1e12, allow_nan=False)


def drawing(chart: str) -> ElementTree.Element:
    """The chart's SVG, parsed: what is not well-formed fails here."""
    found = re.search(r"<svg viewBox=.*?</svg>", chart, re.DOTALL)
    assert found is not None
    return ElementTree.fromstring(found.group())


@settings(max_examples=80, deadline=None)
@given(st.lists(finite, min_size=1, max_size=9), st.booleans())
def test_every_value_lies_inside_and_every_tick_is_in_range(values: list[float], zero: bool):
    scale = Scale.around(values, 0.0, 100.0, zero=zero)
    assert all(0.0 <= scale(value) <= 100.0 for value in values)
    ticks = scale.ticks()
    assert len(ticks) <= 8
    slack = 1e-6 * (scale.high - scale.low)
    assert all(scale.low - slack <= tick <= scale.high + slack for tick in ticks)


@settings(max_examples=80, deadline=None)
@given(st.floats(1e-9, 1e9), st.floats(1.0, 1e8))
def test_a_logarithmic_scale_has_ticks_inside_it(low: float, ratio: float):
    scale = Scale.around([low, low * ratio], 0.0, 100.0, log=True)
    ticks = scale.ticks()
    assert ticks
    assert all(scale.low * 0.999 <= tick <= scale.high * 1.001 for tick in ticks)
    assert 0.0 <= scale(low) <= scale(low * ratio) <= 100.0


def test_a_spike_in_a_long_curve_stays_visible():
    values = [1.0] * 5000
    values[2345] = 9.0
    svg = drawing(curves("loss", [Series("a", range(5000), values)]))
    line = next(p for p in svg.iter("path") if p.get("class") == "line")
    heights = [float(point.split()[1]) for point in (line.get("d") or "")[1:].split("L")]
    assert len(heights) < 400
    assert min(heights) < 0.5 * max(heights)


def test_values_that_are_not_finite_are_left_out():
    chart = curves("loss", [Series("a", [0, 1, 2, 3], [1.0, math.nan, math.inf, 0.5])])
    assert "a: from 1 to 0.5, lowest 0.5, highest 1" in chart
    assert "nan" not in chart
    assert curves("loss", [Series("a", [0], [math.nan])]) == ""


def test_lines_differ_by_more_than_colour_and_a_missing_one_keeps_its_place():
    several = [Series(f"run {i}", [0, 1], [i, i + 1.0]) for i in range(8)]
    svg = drawing(curves("x", several))
    lines = [p for p in svg.iter("path") if p.get("class") == "line"]
    assert len({line.get("stroke-dasharray") for line in lines}) == 8
    alone = curves("x", [Series("absent", [], []), several[1]])
    assert 'stroke="var(--s1)"' in alone
    assert "var(--s0)" not in alone


def test_events_are_flagged_and_told_and_near_ones_share_a_flag():
    events = [Event(50, "1", "shrinking"), Event(51, "2", "rolled back"), Event(90, "3", "healthy")]
    chart = curves("loss", [Series("a", [0, 100], [1.0, 2.0])], events=events)
    svg = drawing(chart)
    flags = [t.text for t in svg.iter("text") if t.get("class") == "flag-text"]
    assert flags == ["1–2", "3"]
    assert sum(p.get("class") == "event" for p in svg.iter("path")) == 3
    assert "2 at 51: rolled back" in (svg.find("desc").text or "")  # type: ignore[union-attr]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 5))
def test_a_map_draws_every_point_once(n: int, classes: int, seed: int):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    svg = drawing(scatter("map", rng.normal(size=(n, 2)) * 10.0 ** rng.integers(-9, 9), labels))
    clouds = [p.get("d") or "" for p in svg.iter("path") if p.get("marker-start")]
    assert sum(1 + cloud.count("L") for cloud in clouds) == n
    for cloud in clouds:
        places = np.array([p.split() for p in cloud[1:].split("L")], float)
        assert places.min() >= 0
        assert places.max() <= 340


def test_a_collapsed_map_is_one_place_and_not_an_error():
    svg = drawing(scatter("map", np.full((5, 2), 7.0), np.array(["a"] * 5)))
    cloud = next(p.get("d") for p in svg.iter("path") if p.get("marker-start"))
    assert cloud == "M" + "L".join(["170 170"] * 5)


def test_classes_on_a_map_differ_by_mark_where_they_share_a_colour():
    labels = np.arange(12)
    svg = drawing(scatter("map", np.random.default_rng(0).normal(size=(12, 2)), labels))
    looks = [(m[0].get("d"), m[0].get("fill")) for m in svg.iter("marker")]
    assert len(set(looks)) == 12


def test_more_classes_than_can_be_told_apart_are_grey_and_the_map_says_so():
    labels = np.repeat(np.arange(30), 2)
    chart = scatter("map", np.random.default_rng(0).normal(size=(60, 2)), labels)
    assert "60 points of 30 classes; the 12 with most points are named, the others grey" in chart
    assert chart.count("<marker ") == 13


def test_long_class_names_become_letters_explained_in_the_legend():
    chart = scatter("map", np.eye(2), np.array(["Scarlet Tanager", "Wren"]))
    assert ">A</text>" in chart
    assert "A: Scarlet Tanager" in chart


def test_a_histogram_shows_shares_of_each_kind():
    kinds = {
        "within": Histogram((0.0, 1.0, 2.0), (30, 10)),
        "between": Histogram((0.0, 1.0, 2.0), (0, 0)),
    }
    chart = histogram("d", kinds, x_label="distance")
    assert "within: most between 0 and 1 (75" in chart
    assert "between" not in drawing(chart).find("desc").text.split(":")[0]  # type: ignore[union-attr]
    assert histogram("d", {"none": Histogram((0.0, 1.0), (0,))}, x_label="distance") == ""


def test_bars_mark_where_99_per_cent_is_reached():
    svg = drawing(bars("s", [0.9, 0.095, 0.005], x_label="axis", split=(2, "99 % in 2")))
    assert any(t.text == "99 % in 2" for t in svg.iter("text"))
    heights = [float(r.get("height") or 0) for r in svg.iter("rect")]
    assert heights[0] / heights[1] == pytest.approx(0.9 / 0.095, rel=0.02)


def test_a_heat_map_writes_its_values_and_crosses_the_bad_ones():
    chart = heatmap(
        "risk", [2, 8], [4, 16], [[0.1, 0.2], [0.3, math.inf]], row_label="P", column_label="K",
        crossed=[[False, False], [False, True]],
    )  # fmt: skip
    texts = [t.text for t in drawing(chart).iter("text") if t.get("class") == "cell"]
    assert texts == ["0.1", "0.2", "0.3", "✗ ∞"]


def test_a_drawing_is_named_and_described_for_those_who_do_not_see_it():
    svg = drawing(curves("Loss", [Series("a", [0, 1], [1.0, 2.0])]))
    assert svg.get("role") == "img"
    named = (svg.get("aria-labelledby") or "").split()
    assert [e.get("id") for e in svg if e.tag in ("title", "desc")] == named
