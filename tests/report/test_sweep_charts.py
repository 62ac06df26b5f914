import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from uncollapse.charts import svg
from uncollapse.charts.marks import Points, Polyline, Text
from uncollapse.metrics.intervals import wilson_interval
from uncollapse.report.sweep_page import Facet, Point, diameter_chart, rate_chart


@given(st.integers(1, 60), st.data())
def test_wilsons_interval_is_where_the_score_test_just_accepts(total, data):
    count = data.draw(st.integers(0, total))
    rate = wilson_interval(count / total, total)

    def score(p):  # (share - p)² = z² p (1 - p) / n at both ends
        return (rate.value - p) ** 2 - 1.959963984540054**2 * p * (1 - p) / total

    low = 0.0 if count == 0 else optimize.brentq(score, 0.0, rate.value - 1e-9)
    high = 1.0 if count == total else optimize.brentq(score, rate.value + 1e-9, 1.0)
    assert math.isclose(rate.low, low, abs_tol=1e-9)
    assert math.isclose(rate.high, high, abs_tol=1e-9)


def point(x, size, bound=None, group="", *, start=2.0, collapsed=False):
    row = {"diameter": size, "diameter_init": start, "bound": bound, "collapsed": collapsed}
    return Point(x, row, group)


def runs():
    sizes = np.geomspace(2.0, 1e-4, 6)
    points = [
        point(2.0**i, float(size), 1.0 - 0.3 * i, f"P = {i % 2}", collapsed=bool(size < 0.02))
        for i, size in enumerate(sizes)
    ]
    return Facet("batch size", "", points)


def test_collapsed_runs_are_crosses_and_the_bound_stops_where_it_says_nothing():
    chart = diameter_chart(runs())
    crosses = [m for m in chart.marks if isinstance(m, Points) and m.kind == "cross"]
    assert len(crosses) == sum(run.row["collapsed"] for run in runs().points)
    assert all(cross.colour == "bad" for cross in crosses)
    assert "says nothing (is at most 0) at 2 of 6 batch sizes" in chart.note
    assert "logarithmic scale" in chart.note
    (bound,) = [m for m in chart.marks if isinstance(m, Polyline) and m.colour == "s0"]
    assert len(bound.points) == 4


def test_a_chart_without_a_wide_range_is_linear_and_starts_at_zero():
    near = [point(x, 1.0 + 0.1 * x, start=1.0) for x in (1.0, 2.0)]
    chart = diameter_chart(Facet("margin", "", near))
    assert "logarithmic" not in chart.note
    assert "bound (17)" not in [entry.name for entry in chart.legend]
    assert "0" in [m.text for m in chart.marks if isinstance(m, Text)]


@pytest.mark.parametrize(
    "chart",
    [
        diameter_chart(Facet("batch size", "A & B", runs().points)),
        rate_chart(Facet("dimension", "", [point(2, 1.0), point(4, 1.0), point(4, 0.0)])),
    ],
)
def test_a_picture_stands_alone_as_well_formed_svg(chart):
    from xml.etree import ElementTree

    root = ElementTree.fromstring(svg(chart))
    assert root.tag.endswith("svg")
    text = "".join(root.itertext())
    assert "--card" in text  # it brings its colours
