"""Collapse: measured in a snapshot, watched during training, predicted by drift."""

from uncollapse.health.advice import RunSettings, rank_strategies
from uncollapse.health.drifts import Probe, Stepping, direction_drift, drift, mode_drift, probe
from uncollapse.health.figures import measure
from uncollapse.health.forecasts import Forecast, forecast
from uncollapse.health.guard import Guard
from uncollapse.health.monitor import CollapseMonitor
from uncollapse.health.race import Race
from uncollapse.health.verdict import VERDICTS, ClassHealth, Health, Reference, Thresholds, judge
from uncollapse.health.watching import Logger, Watch, log_health, watch

__all__ = [
    "VERDICTS",
    "ClassHealth",
    "CollapseMonitor",
    "Forecast",
    "Guard",
    "Health",
    "Logger",
    "Probe",
    "Race",
    "Reference",
    "RunSettings",
    "Stepping",
    "Thresholds",
    "Watch",
    "direction_drift",
    "drift",
    "forecast",
    "judge",
    "log_health",
    "measure",
    "mode_drift",
    "probe",
    "rank_strategies",
    "watch",
]
