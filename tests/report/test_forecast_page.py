import math
from dataclasses import replace

from report.examples import EASY, FALLING, cell, forecast_of, raced
from uncollapse.health.drifts import ModeDrift, Probe
from uncollapse.health.forecasts import Forecast
from uncollapse.report.forecast_page import make_forecast_page


def test_maps_and_curves_show_every_shape_and_nothing_is_fetched():
    page = make_forecast_page(forecast_of()).render()
    assert "Dimension 4" in page
    assert "✓ +0.01" in page  # P 2, K 2, dimension 4
    assert "~ +0.08" in page  # P 8, K 4
    assert "P 8, K 4: +0.08, shrinks; may stop in time" in page
    assert "P 8, K 4: 0.08 at " in page
    assert "+0.080" in page  # the table of all figures
    assert "up to 0.02 nothing shrinks, above 0.25 the risk is high" in page
    probed = make_forecast_page(forecast_of(FALLING, dims=(4,))).render()
    assert "✗ 25\N{NO-BREAK SPACE}%" in probed  # the share that it predicts
    assert 'id="probes"' in probed
    assert 'id="dimensions"' not in probed
    assert "http:" not in page
    assert "https:" not in page


def test_the_worst_risk_is_said_first_and_the_bound_is_no_guarantee():
    risky = Forecast((cell(8, 8, 4, 0.9), cell(2, 2, 4, 0.0)), (), 2.0)
    page = make_forecast_page(risky, "Two shapes").render()
    assert "1 of 2 shapes of hard x hard are at high risk" in page
    assert 'class="verdict bad"' in page
    assert 'id="strategies"' not in page


def test_mode_drift_is_shown_at_the_start_and_after_the_probe():
    probe = Probe((1.0,) * 10, (1.0,) * 10, (0.0,) * 10, (math.nan,) * 6 + (7.75,) * 4)
    own = replace(cell(2, 8, 4, 0.01, probe=probe), modes=ModeDrift(0.25, 0.1, 0.2, 1.0))
    other = replace(cell(2, 8, 4, -0.1, EASY), modes=ModeDrift(-0.5, 0.1, -0.4, 1.0))
    page = make_forecast_page(Forecast((own,), (other,), 2.0)).render()
    for shown in ("+0.25", "+7.75", "-0.50", "mode drift, probed", "largest mode drift"):
        assert shown in page
    assert "hard x hard merges the modes of a class (mode drift +7.8)" in page
    assert "mode drift, probed" not in make_forecast_page(forecast_of()).render()


def test_a_race_is_drawn_and_its_winner_is_recommended():
    alone = Forecast((cell(8, 8, 4, 0.9),), (), 2.0)
    page = make_forecast_page(alone, race=raced()).render()
    for shown in (
        "Recommended: easy x hard.",
        "hard x hard: 30\N{NO-BREAK SPACE}% at 0 and 20\N{NO-BREAK SPACE}% at 9",
        "4.2\N{NO-BREAK SPACE}%",  # of the scale is left
        "no room",
    ):
        assert shown in page
    assert 'id="shapes"' not in page  # a map of one shape says nothing
    assert 'id="race"' not in make_forecast_page(alone).render()
