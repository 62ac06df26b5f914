"""The charts: no point lost, readable without color, described in words; empty ones say so."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.errors import refused
from uncollapse._base.table import number, percent
from uncollapse.charts import (
    Chart,
    Event,
    Scale,
    Series,
    bars,
    curves,
    heatmap,
    histogram,
    panels,
    png,
    scatter,
    svg,
)  # fmt: skip
from uncollapse.charts.marks import Group, Line, Points, Polyline, Rect, Text
from uncollapse.charts.plots import _labels_apart, by_size
from uncollapse.charts.text import text_width, tick_text, wrapped
from uncollapse.health.verdict import Histogram


def of(chart, kind):
    return [mark for mark in chart.marks if isinstance(mark, kind)]


def words(chart):
    return [mark.text for mark in of(chart, Text)]


def test_a_spike_stays_visible_and_values_that_are_not_finite_are_left_out():
    values = [1.0] * 5000
    values[2338] = 9.0  # neither the first nor the last of its stretch
    (line,) = of(curves("loss", [Series("a", range(5000), values)]), Polyline)
    heights = [y for _, y in line.points]
    assert len(heights) < 400
    assert min(heights) < 0.5 * max(heights)
    gaps = [1.0, math.nan, math.inf, 0.25, 0.5]
    chart = curves("loss", [Series("a", range(5), gaps)])
    assert chart.description == "a: from 1 to 0.5, lowest 0.25, highest 1"


def test_fewer_than_three_values_are_a_sentence_and_no_drawing():
    two = curves("R@1", [Series("test", [0, 20], [0.5, 0.625])], percent=True)
    assert two.description == "test: 50\N{NO-BREAK SPACE}% at 0 and 62.5\N{NO-BREAK SPACE}% at 20."
    assert " ".join(words(two)) == two.description
    assert not of(two, Points)
    assert of(curves("R@1", [Series("test", [0, 20, 40], [0.5, 0.6, 0.7])]), Points)
    spectrum = bars("Spectrum", [0.75, 0.25], x_label="axis")
    assert words(spectrum) == ["axis 1: 0.75, 2: 0.25."]
    long = curves(
        "t", [Series("a name that takes most of a line of the chart", [0, 1], [1.0, 2.0])]
    )
    assert len(words(long)) == 2  # it is wrapped
    assert all(text_width(line) <= long.width for line in words(long))


@pytest.mark.parametrize("low", [9.998, 0.99998, 99_998.0, 1e-5 + 1e-9, -3.0002])
def test_ticks_of_a_narrow_range_can_be_told_apart(low):
    chart = curves(
        "t", [Series("a", [low + i * abs(low) * 1e-5 for i in range(5)], [0, 1, 2, 1, 0])]
    )
    bottom = max(mark.y for mark in of(chart, Text))
    ticks = [mark.text for mark in of(chart, Text) if bottom - 20 < mark.y < bottom - 10]
    assert len(ticks) >= 2
    assert len(set(ticks)) == len(ticks)
    upright = histogram(
        "t", {"a": Histogram((low, low + abs(low) * 1e-5), (3,))}, x_label="distance"
    )
    assert "10" not in words(upright)


@pytest.mark.parametrize(
    "chart",
    [
        curves("t", [Series("a", [0], [math.nan])]),
        curves("t", []),
        bars("t", [], x_label="x"),
        bars("t", [math.nan], x_label="x"),
        histogram("t", {"none": Histogram((0.0, 1.0), (0,))}, x_label="x"),
        heatmap("t", [], [], [], row_label="r", column_label="c"),
        scatter("t", np.empty((0, 2))),
        scatter("t", np.full((2, 2), np.nan), np.array([0, 1])),
    ],
)
def test_a_chart_of_nothing_says_so(chart):
    (sentence,) = words(chart)
    assert sentence == chart.description
    assert sentence.endswith(".")
    assert png(chart)[:4] == b"\x89PNG"


@given(
    st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=8),
    st.sampled_from([None, True, False]),
)
@example([0.0] * 2, False).via("constant values")
@example([-3.0] * 2, False).via("constant values")
@example([1e-9] * 2, False).via("constant values")
def test_any_values_make_a_chart_inside_its_frame(values: list[float], log):
    values = [v if not math.isfinite(v) else max(-1e200, min(1e200, v)) for v in values]
    chart = curves("any", [Series("a", range(len(values)), values)], log=log)
    for line in of(chart, Polyline):
        assert all(40 <= x <= 340 and math.isfinite(y) for x, y in line.points)
        assert log is not False or all(10 < y <= 186 for _, y in line.points)
    assert "nan" not in svg(chart)


def test_lines_differ_by_more_than_colour_and_a_missing_one_keeps_its_place():
    several = [Series(f"run {i}", [0, 1, 2], [i, i + 1.0, i]) for i in range(8)]
    lines = of(curves("x", several), Polyline)
    assert len({tuple(line.dash) for line in lines}) == 8
    alone = curves("x", [Series("absent", [], []), several[1]])
    assert [line.color for line in of(alone, Polyline)] == ["s1"]
    assert [entry.name for entry in alone.legend] == ["run 1"]
    band, line = of(curves("x", [Series("a", [0, 1], [1, 2], [0.5, 1.5], [1.5, 2.5])]), Polyline)
    assert band.fill == line.color == "s0"
    assert len(band.points) == 4


def test_events_are_flagged_and_described_and_near_ones_share_a_flag():
    events = [Event(50, "1", "shrinking"), Event(51, "2", "rolled back"), Event(90, "3", "healthy")]
    chart = curves("loss", [Series("a", [0, 100], [1.0, 2.0])], events=events)
    assert [mark.text for mark in of(chart, Text) if mark.bold] == ["1,2", "3"]
    assert sum(mark.dash == (2, 3) for mark in of(chart, Line)) == 3
    assert "2 at 51: rolled back" in chart.description
    assert "2 at 51: rolled back" in of(chart, Rect)[0].tip


@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 5))
def test_a_map_draws_every_point_once(n: int, classes: int, seed: int):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    chart = scatter("map", rng.normal(size=(n, 2)) * 10.0 ** rng.integers(-9, 9), labels)
    places = np.array([place for cloud in of(chart, Points) for place in cloud.places])
    assert len(places) == n
    assert 0 <= places.min() <= places.max() <= 340


def test_names_on_a_map_do_not_overprint_even_when_all_classes_are_one_point():
    chart = scatter("map", np.full((48, 2), 7.0), np.repeat(np.arange(100, 112), 4))
    assert {place for cloud in of(chart, Points) for place in cloud.places} == {(170.0, 170.0)}
    names = [mark for mark in of(chart, Text) if mark.bold]
    assert len(names) == 12
    for name, other in combinations(names, 2):
        wide = text_width(name.text, bold=True)
        assert abs(name.x - other.x) >= wide or abs(name.y - other.y) >= name.size


LABELS = st.tuples(st.floats(0, 300), st.floats(0, 300), st.floats(5, 40))


@given(st.lists(LABELS, min_size=1, max_size=12))
def test_labels_moved_apart_stay_inside_and_do_not_overlap(labels):
    sizes = [(wide, 12.0) for _, _, wide in labels]
    placed = _labels_apart([(x, y) for x, y, _ in labels], sizes, (0.0, 0.0, 300.0, 300.0))
    boxes = [(x, y, w) for (x, y), (w, _) in zip(placed, sizes, strict=True)]
    for x, y, w in boxes:
        assert w / 2 - 0.1 <= x <= 300 - w / 2 + 0.1
        assert 5.9 <= y <= 294.1
    for (x, y, w), (a, b, v) in combinations(boxes, 2):
        # Not quite a guarantee of the method, but of what it must reach: a letter's breadth.
        assert abs(x - a) >= (w + v) / 2 - 1.5 or abs(y - b) >= 10.5


def test_labels_that_overlap_nothing_stay():
    places = [(50.0, 50.0), (50.0, 50.0), (51.0, 50.0), (200.0, 200.0)]
    placed = np.array(_labels_apart(places, [(20.0, 12.0)] * 4, (0.0, 0.0, 300.0, 300.0)))
    assert placed[3].tolist() == [200.0, 200.0]
    assert np.abs(placed[:3] - 50.0).max() < 30.0


def test_classes_on_a_map_differ_by_marker_and_those_beyond_are_grey_and_counted():
    points = np.random.default_rng(0).normal(size=(60, 2))
    chart = scatter("map", points[:12], np.arange(12))
    assert len({(cloud.kind, cloud.color) for cloud in of(chart, Points)}) == 12
    chart = scatter("map", points, np.repeat(np.arange(30), 2))
    assert "60 points of 30 classes; the 12 largest are named" in chart.note
    assert len(of(chart, Points)) == 13
    chart = scatter("map", np.eye(2), np.array(["Scarlet Tanager", "Wren"]))
    assert "A" in words(chart)  # for a long name
    assert chart.legend[0].name == "A: Scarlet Tanager"


def test_a_legend_has_the_largest_class_first_and_K2_before_K10():
    labels = np.array([f"K{i}" for i in (1, 10, 11, 2, 3, 10, 2, 3, 1, 3)])
    chart = scatter("map", np.arange(20.0).reshape(10, 2), labels)
    assert [entry.name for entry in chart.legend] == ["K3", "K1", "K2", "K10", "K11"]
    chosen = scatter("map", np.arange(20.0).reshape(10, 2), labels, classes=["K11", "K2"])
    assert [entry.name for entry in chosen.legend] == ["K11", "K2"]
    assert [len(cloud.places) for cloud in of(chosen, Points)] == [7, 1, 2]  # the others first
    assert by_size(np.array(["9" * 5000, "1"])) == ["1", "9" * 5000]


def test_a_histogram_shows_shares_of_each_kind():
    counts = {"within": (30, 10), "between": (0, 0)}
    kinds = {kind: Histogram((0.0, 1.0, 2.0), some) for kind, some in counts.items()}
    chart = histogram("d", kinds, x_label="distance")
    assert chart.description.startswith("within: most between 0 and 1 (75")
    assert [entry.name for entry in chart.legend] == ["within"]


def test_bars_mark_where_99_per_cent_is_reached_and_stand_on_zero():
    chart = bars("s", [0.9, 0.095, 0.005], x_label="axis", split=(2, "99 % in 2"))
    assert "99 % in 2" in words(chart)
    first, second, _ = of(chart, Rect)
    assert first.height / second.height == pytest.approx(0.9 / 0.095, rel=0.02)
    assert first.tip == "1: 0.9"
    up, down, _ = of(bars("s", [1.0, -1.0, 0.5], x_label="axis"), Rect)
    assert up.y + up.height == pytest.approx(down.y)
    zeros = bars("spectrum", [0.0] * 3, x_label="axis", percent=True)
    assert "100\N{NO-BREAK SPACE}%" in words(zeros)


def test_a_heat_map_writes_its_values_and_crosses_the_bad_ones():
    values = [[0.1, 0.2], [0.3, math.inf]]
    crossed = [[False, False], [False, True]]
    chart = heatmap("r", [2, 8], [4, 16], values, row_label="P", column_label="K", crossed=crossed)
    inside = [mark.text for mark in of(chart, Text) if mark.color == "ink"]
    assert inside == ["0.1", "0.2", "0.3", "✗ ∞"]


@pytest.mark.parametrize("count", [1, 3, 8, 14, 30])
def test_numbers_of_a_heat_map_fit_their_cells(count: int):
    values = [[-1.2345e-7 * (j + 1) for j in range(count)] for _ in range(3)]
    chart = heatmap(
        "h", ["a long name of a row", 2, 3], [1000 * j for j in range(count)], values,
        row_label="P", column_label="K", crossed=[[True] * count] * 3,
    )  # fmt: skip
    cells = of(chart, Rect)
    for text in [mark for mark in of(chart, Text) if mark.color == "ink"]:
        half = text_width(text.text, text.size) / 2
        around = [c for c in cells if c.x <= text.x - half and text.x + half <= c.x + c.width]
        assert sum(c.y <= text.y <= c.y + c.height for c in around) == 1
        assert text.size >= 9
    assert max(c.x + c.width for c in cells) <= chart.width


def test_panels_stand_side_by_side_under_one_title():
    one = Chart("one", "first", (Rect(0, 0, 100, 50, "s0"),), 100, 50)
    two = Chart("two", "second", (Rect(0, 0, 100, 50, "s1"),), 100, 80)
    both = panels("both", [one, two, one], columns=2)
    groups = of(both, Group)
    assert [group.x for group in groups] == [0.0, 114.0, 0.0]
    assert groups[2].y > groups[1].y
    assert "one: first. two: second" in both.description
    with refused("columns"):
        panels("none", [one], columns=0)


def test_wrapped_lines_fit_and_lose_nothing():
    text = "a rather long sentence with aVeryLongWordThatFitsOnNoLineAtAll\nand a break"
    lines = wrapped(text, 120)
    assert all(text_width(line) <= 120 for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "").replace("\n", "")
    assert wrapped("", 100) == []


# Scales: every value inside, ticks round and in range, any kind.

finite = st.floats(-1e12, 1e12, allow_nan=False)


@given(st.lists(finite, min_size=1, max_size=9), st.booleans())
def test_every_value_lies_inside_and_every_tick_is_in_range(values: list[float], zero: bool):
    scale = Scale.around(values, 0.0, 100.0, zero=zero)
    assert all(0.0 <= scale(value) <= 100.0 for value in values)
    ticks = scale.ticks()
    assert len(ticks) <= 8
    slack = 1e-6 * (scale.high - scale.low)
    assert all(scale.low - slack <= tick <= scale.high + slack for tick in ticks)


@given(st.floats(1e-9, 1e9), st.floats(1.0, 1e8))
def test_a_logarithmic_scale_has_ticks_inside_it(low: float, ratio: float):
    scale = Scale.around([low, low * ratio], 0.0, 100.0, log=True)
    ticks = scale.ticks()
    assert ticks
    assert all(scale.low * 0.999 <= tick <= scale.high * 1.001 for tick in ticks)
    assert 0.0 <= scale(low) <= scale(low * ratio) <= 100.0


def test_a_scale_ignores_what_it_cannot_show_and_is_logarithmic_for_a_wide_range():
    scale = Scale.around([-1.0, 0.0, math.nan, math.inf, 0.1, 10.0], 0.0, 100.0, log=True)
    assert (scale.low, scale.high) == pytest.approx((0.1 / 1.2, 12.0))
    assert math.isfinite(scale(0.0))
    assert Scale.around([-1.0], 0.0, 100.0, log=True).ticks()
    wide = Scale.around([1.0, math.nan, math.inf, 2.0], 0.0, 1.0)
    assert wide == Scale.around([1.0, 2.0], 0.0, 1.0)
    lows = (0.01, 0.5, 0.0)
    assert [Scale.around([low, 1.0], 0, 1, log=None).log for low in lows] == [True, False, False]


def test_numbers_are_short_and_unknown_ones_a_dash():
    assert [number(v) for v in (math.nan, math.inf, -math.inf, 0.5)] == ["–", "∞", "−∞", "0.5"]
    assert percent(math.nan) == "–"
    assert [number(-0.0), percent(-0.0), percent(20.09, 2)] == [
        "0",
        "0\N{NO-BREAK SPACE}%",
        "20 times",
    ]
    assert max(len(tick_text(v)) for v in (1e-9, 12500.0, 123456789.0, -0.00025)) <= 12
