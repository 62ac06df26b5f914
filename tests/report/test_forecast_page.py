import math
from dataclasses import replace
from pathlib import Path

import pytest

from uncollapse.health.drifts import ModeDrift, Probe
from uncollapse.health.forecasts import Forecast, ForecastCell
from uncollapse.health.race import Race, RaceScore
from uncollapse.health.strategy import Strategy
from uncollapse.report.forecast_page import make_forecast_page
from uncollapse.training.predictions import Entrant, RaceResult

pytestmark = pytest.mark.slow

HARD, EASY = Strategy("hard", "hard", scale_free=False), Strategy("easy", "hard", scale_free=False)


def cell(
    p: int, k: int, dim: int, drift: float, strategy: Strategy = HARD, probe=None
) -> ForecastCell:
    return ForecastCell(p, k, dim, strategy, drift, 0.01, 0.5, 2.0, 0.7, 2.0 - 2 * 0.7, probe)


def found(probe: Probe | None = None, dims: tuple[int, ...] = (4, 64)) -> Forecast:
    own = [
        cell(p, k, d, 0.01 * p * k / d, probe=probe) for d in dims for p in (2, 8) for k in (2, 4)
    ]
    other = [cell(p, k, d, -0.1, EASY) for d in dims for p in (2, 8) for k in (2, 4)]
    return Forecast(tuple(own), tuple(other), 2.0)


def forecast_of_one_shape() -> Forecast:
    return Forecast((cell(8, 8, 4, 0.9),), (), 2.0)


def raced() -> RaceResult:
    laps = (RaceScore("easy x hard", 9, 0.5), RaceScore("hard x hard", 9, 0.2))
    own = Entrant(HARD, 0.9, 9, 0.2, 0.042, "out")
    free = Strategy("hard", "hard", scale_free=True)
    others = Entrant(EASY, -0.1, 9, 0.5, 1.5, "wins"), Entrant(free, 0.0, *[None] * 3, "no room")
    entrants = (others[0], own, others[1])
    return RaceResult(Race(laps, "easy x hard", 96, 20.0), 0.3, HARD, entrants)


def test_the_map_shows_every_shape_with_its_sign_and_drift():
    page = make_forecast_page(found()).render()
    assert "Dimension 4" in page
    assert "✓ +0.01" in page  # P 2, K 2, dimension 4
    assert "~ +0.08" in page  # P 8, K 4
    assert "P 8, K 4: +0.08, shrinks; may stop in time" in page


def test_curves_over_the_dimension_need_more_than_one():
    assert "P 8, K 4: from 0.08 to 0.005" in make_forecast_page(found()).render()
    assert 'id="dimensions"' not in make_forecast_page(found(dims=(4,))).render()


def test_the_worst_risk_is_said_first_and_the_bound_is_no_guarantee():
    risky = Forecast((cell(8, 8, 4, 0.9), cell(2, 2, 4, 0.0)), (), 2.0)
    page = make_forecast_page(risky, "Two shapes").render()
    assert "1 of 2 shapes of hard x hard are at high risk" in page
    assert 'class="verdict bad"' in page
    assert "no guarantee" in page
    assert 'id="strategies"' not in page


def test_a_probe_replaces_the_drift_by_the_share_it_predicts():
    falling = Probe((1.0,) * 5 + (0.5,) * 5, (1.0,) * 10, (0.4,) * 5 + (0.2,) * 5)
    page = make_forecast_page(found(falling)).render()
    assert "✗ 25\N{NO-BREAK SPACE}%" in page
    assert 'id="probes"' in page


def test_mode_drift_is_shown_at_the_start_and_after_the_probe():
    falling = Probe((1.0,) * 10, (1.0,) * 10, (0.0,) * 10, (math.nan,) * 6 + (7.75,) * 4)
    own = replace(cell(2, 8, 4, 0.01, probe=falling), modes=ModeDrift(0.25, 0.1, 0.2, 1.0))
    other = replace(cell(2, 8, 4, -0.1, EASY), modes=ModeDrift(-0.5, 0.1, -0.4, 1.0))
    page = make_forecast_page(Forecast((own,), (other,), 2.0)).render()
    for shown in ("+0.25", "+7.75", "-0.50", "mode drift, probed", "largest mode drift"):
        assert shown in page
    assert "hard x hard merges the modes of a class (mode drift +7.8)" in page
    without = make_forecast_page(found()).render()
    assert "Mode drift asks the same" in without
    assert "mode drift, probed" not in without


def test_a_race_is_drawn_and_its_winner_is_recommended():
    one = forecast_of_one_shape()
    page = make_forecast_page(one, race=raced()).render()
    assert "Recommended: easy x hard." in page
    assert "Race from the untrained network" in page
    assert "hard x hard: from 0.3 to 0.2" in page
    assert "easy x hard (chosen)" in page
    assert "the run&#39;s own" in page
    assert "4.2\N{NO-BREAK SPACE}%" in page  # of the scale is left
    assert "no room" in page
    assert "hard x hard shrinks towards a point" in page
    assert 'id="shapes"' not in page  # a map of one shape says nothing
    assert 'id="race"' not in make_forecast_page(one).render()


@pytest.mark.parametrize("name", ["plain.html", "new/folder.html"])
def test_the_page_is_one_file_that_fetches_nothing(tmp_path: Path, name: str):
    path = make_forecast_page(found()).save(tmp_path / name)
    text = path.read_text()
    assert "http://" not in text
    assert "https://" not in text


@pytest.mark.parametrize("width", [375, 1280])
def test_the_page_opens_without_complaint_network_or_overflow(browser, tmp_path: Path, width: int):
    falling = Probe((1.0,) * 5 + (0.5,) * 5, (1.0,) * 10, (0.4,) * 5 + (0.2,) * 5)
    path = make_forecast_page(found(falling), race=raced()).save(tmp_path / "forecast.html")
    visit = browser.open(path, width)
    assert visit.complaints == []
    fetched = [url for url in visit.requests if not url.startswith("data:")]
    assert fetched == [path.resolve().as_uri()]
    assert visit.value("document.documentElement.scrollWidth") == width
