"""From a config to a trained, evaluated embedding in a run directory."""

from uncollapse._base.extras import keep_memory
from uncollapse._base.lock import InUseError
from uncollapse.training.checkpoint import CheckpointError
from uncollapse.training.config import Config, load_config, parse_config
from uncollapse.training.engine import TrainingError, train
from uncollapse.training.evaluation import embed, evaluate
from uncollapse.training.measurer import measure_run
from uncollapse.training.measures import Measures, NotMeasuredError
from uncollapse.training.run import Run, UntrustedCodeError

__all__ = [
    "CheckpointError",
    "Config",
    "InUseError",
    "Measures",
    "NotMeasuredError",
    "Run",
    "TrainingError",
    "UntrustedCodeError",
    "embed",
    "evaluate",
    "keep_memory",
    "load_config",
    "measure_run",
    "parse_config",
    "train",
]
