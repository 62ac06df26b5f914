"""Collapse: measured in a snapshot, watched during training, foretold by the radial drift."""

from uncollapse.health.advice import RunSettings
from uncollapse.health.drift import Drift, drift
from uncollapse.health.drift_table import DriftRow, drift_table
from uncollapse.health.figures import cdnv, effective_rank, nc1, principal_axes
from uncollapse.health.measure import measure
from uncollapse.health.monitor import CollapseMonitor
from uncollapse.health.noise_probe import NoiseProbe, noise_probe
from uncollapse.health.state import VERDICTS, ClassHealth, Health, Histogram, Norms, Reference
from uncollapse.health.verdict import Thresholds, judge

__all__ = [
    "VERDICTS",
    "ClassHealth",
    "CollapseMonitor",
    "Drift",
    "DriftRow",
    "Health",
    "Histogram",
    "NoiseProbe",
    "Norms",
    "Reference",
    "RunSettings",
    "Thresholds",
    "cdnv",
    "drift",
    "drift_table",
    "effective_rank",
    "judge",
    "measure",
    "nc1",
    "noise_probe",
    "principal_axes",
]
