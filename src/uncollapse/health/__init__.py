"""Collapse: measured in a snapshot, watched during training, predicted by drift."""

from uncollapse.health.advice import Advice, advise_on
from uncollapse.health.drift_forecast import forecast
from uncollapse.health.forecast_result import Cell, Forecast
from uncollapse.health.guard import Guard
from uncollapse.health.guard_event import GuardEvent
from uncollapse.health.loggers import (
    Logger,
    MlflowLogger,
    TensorBoardLogger,
    WandbLogger,
    log_health,
)
from uncollapse.health.measuring import measure
from uncollapse.health.modal_drift import ModeDrift, mode_drift
from uncollapse.health.monitor import CollapseMonitor
from uncollapse.health.noisy_labels import NoiseProbe, noise_probe
from uncollapse.health.race import Lap, Race
from uncollapse.health.radial_drift import Drift, drift
from uncollapse.health.ranking import rank_strategies
from uncollapse.health.records import (
    VERDICTS,
    ClassHealth,
    Cosines,
    Health,
    Histogram,
    NearestLabels,
    Norms,
    Reference,
)
from uncollapse.health.run_settings import RunSettings
from uncollapse.health.sentence_loss import SentenceLoss
from uncollapse.health.statistics import cdnv, effective_rank, nc1, principal_axes
from uncollapse.health.strategy import Strategy, strategy_of
from uncollapse.health.strategy_drifts import DriftRow, drift_table
from uncollapse.health.thresholds import Thresholds
from uncollapse.health.trial_steps import Probe, predict_scale, probe
from uncollapse.health.verdict import judge

__all__ = [
    "VERDICTS",
    "Advice",
    "Cell",
    "ClassHealth",
    "CollapseMonitor",
    "Cosines",
    "Drift",
    "DriftRow",
    "Forecast",
    "Guard",
    "GuardEvent",
    "Health",
    "Histogram",
    "Lap",
    "Logger",
    "MlflowLogger",
    "ModeDrift",
    "NearestLabels",
    "NoiseProbe",
    "Norms",
    "Probe",
    "Race",
    "Reference",
    "RunSettings",
    "SentenceLoss",
    "Strategy",
    "TensorBoardLogger",
    "Thresholds",
    "WandbLogger",
    "advise_on",
    "cdnv",
    "drift",
    "drift_table",
    "effective_rank",
    "forecast",
    "judge",
    "log_health",
    "measure",
    "mode_drift",
    "nc1",
    "noise_probe",
    "predict_scale",
    "principal_axes",
    "probe",
    "rank_strategies",
    "strategy_of",
]
