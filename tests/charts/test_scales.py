"""Scales: every value inside, ticks round and in range, any kind."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncollapse._base.table import number, percent
from uncollapse.charts import Scale
from uncollapse.charts.text import tick_text

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


def test_a_logarithmic_scale_ignores_what_has_no_logarithm():
    scale = Scale.around([-1.0, 0.0, math.nan, math.inf, 0.1, 10.0], 0.0, 100.0, log=True)
    assert scale.low == pytest.approx(0.1 / 1.2)
    assert scale.high == pytest.approx(12.0)
    assert math.isfinite(scale(0.0))
    nothing = Scale.around([-1.0], 0.0, 100.0, log=True)
    assert nothing.ticks()


def test_values_that_are_not_finite_do_not_widen_a_scale():
    assert Scale.around([1.0, math.nan, math.inf, 2.0], 0.0, 1.0) == Scale.around(
        [1.0, 2.0], 0.0, 1.0
    )


def test_a_wide_range_is_logarithmic_and_a_narrow_one_is_not():
    assert Scale.around([0.01, 1.0], 0, 1, log=None).log
    assert not Scale.around([0.5, 1.0], 0, 1, log=None).log
    assert not Scale.around([0.0, 1.0], 0, 1, log=None).log


def test_numbers_are_short_and_unknown_ones_a_dash():
    assert [number(v) for v in (math.nan, math.inf, -math.inf, 0.5)] == ["–", "∞", "−∞", "0.5"]
    assert percent(math.nan) == "–"
    assert max(len(tick_text(v)) for v in (1e-9, 12500.0, 123456789.0, -0.00025)) <= 12
