"""Collapse: measured in a snapshot, watched during training, predicted by drift."""

from typing import TYPE_CHECKING

from uncollapse._base.extras import lazy_names
from uncollapse.health.advice import RunSettings, rank_strategies
from uncollapse.health.drifts import Probe, direction_drift, drift, drift_table, mode_drift, probe
from uncollapse.health.figures import measure
from uncollapse.health.forecasts import Forecast, forecast
from uncollapse.health.guard import Guard
from uncollapse.health.loggers import MlflowLogger, TensorBoardLogger, WandbLogger, log_health
from uncollapse.health.monitor import CollapseMonitor
from uncollapse.health.race import Race
from uncollapse.health.verdict import VERDICTS, ClassHealth, Health, Reference, Thresholds, judge
from uncollapse.health.watching import Watch, watch

if TYPE_CHECKING:
    from uncollapse.health.huggingface import SentenceLoss
else:  # loaded when first used: it loads transformers
    __getattr__ = lazy_names(__name__, {"huggingface": "SentenceLoss"})

__all__ = [
    "VERDICTS",
    "ClassHealth",
    "CollapseMonitor",
    "Forecast",
    "Guard",
    "Health",
    "MlflowLogger",
    "Probe",
    "Race",
    "Reference",
    "RunSettings",
    "SentenceLoss",
    "TensorBoardLogger",
    "Thresholds",
    "WandbLogger",
    "Watch",
    "direction_drift",
    "drift",
    "drift_table",
    "forecast",
    "judge",
    "log_health",
    "measure",
    "mode_drift",
    "probe",
    "rank_strategies",
    "watch",
]
