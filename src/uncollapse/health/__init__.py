"""Collapse: measured in a snapshot, watched during training, predicted by drift."""

from uncollapse.health.advice import Advice, advise_on
from uncollapse.health.drifts import (
    Drift,
    ModeDrift,
    Probe,
    drift,
    drift_table,
    mode_drift,
    predict_scale,
    probe,
)
from uncollapse.health.figures import measure
from uncollapse.health.forecasts import Forecast, forecast
from uncollapse.health.guard import Guard, GuardEvent
from uncollapse.health.loggers import (
    Logger,
    MlflowLogger,
    TensorBoardLogger,
    WandbLogger,
    log_health,
)
from uncollapse.health.monitor import CollapseMonitor
from uncollapse.health.race import Race
from uncollapse.health.sentence_loss import SentenceLoss
from uncollapse.health.strategy import RunSettings, Strategy, rank_strategies, strategy_of
from uncollapse.health.verdict import VERDICTS, ClassHealth, Health, Reference, Thresholds, judge

__all__ = [
    "VERDICTS",
    "Advice",
    "ClassHealth",
    "CollapseMonitor",
    "Drift",
    "Forecast",
    "Guard",
    "GuardEvent",
    "Health",
    "Logger",
    "MlflowLogger",
    "ModeDrift",
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
    "drift",
    "drift_table",
    "forecast",
    "judge",
    "log_health",
    "measure",
    "mode_drift",
    "predict_scale",
    "probe",
    "rank_strategies",
    "strategy_of",
]
