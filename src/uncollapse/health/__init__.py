"""Collapse: measured in a snapshot, watched during training, foretold by the radial drift."""

from uncollapse.health.advice import RunSettings
from uncollapse.health.drift import Drift, drift
from uncollapse.health.drift_table import DriftRow, drift_table
from uncollapse.health.figures import cdnv, effective_rank, nc1, principal_axes
from uncollapse.health.forecast import Cell, Forecast, forecast
from uncollapse.health.guard import Guard, GuardEvent
from uncollapse.health.measure import measure
from uncollapse.health.monitor import CollapseMonitor
from uncollapse.health.noise_probe import NoiseProbe, noise_probe
from uncollapse.health.probe import Probe, foretell, probe
from uncollapse.health.state import VERDICTS, ClassHealth, Health, Histogram, Norms, Reference
from uncollapse.health.strategy import Strategy, ladder, strategy_of
from uncollapse.health.thresholds import Thresholds
from uncollapse.health.verdict import judge

__all__ = [
    "VERDICTS",
    "Cell",
    "ClassHealth",
    "CollapseMonitor",
    "Drift",
    "DriftRow",
    "Forecast",
    "Guard",
    "GuardEvent",
    "Health",
    "Histogram",
    "NoiseProbe",
    "Norms",
    "Probe",
    "Reference",
    "RunSettings",
    "Strategy",
    "Thresholds",
    "cdnv",
    "drift",
    "drift_table",
    "effective_rank",
    "forecast",
    "foretell",
    "judge",
    "ladder",
    "measure",
    "nc1",
    "noise_probe",
    "principal_axes",
    "probe",
    "strategy_of",
]
