"""From a config to a trained, evaluated embedding in a run directory."""

from uncollapse.training.checkpoint import Checkpoint, CheckpointError, CheckpointStore
from uncollapse.training.config import Config, load_config, parse_config
from uncollapse.training.engine import TrainingError, train
from uncollapse.training.evaluation import embed, evaluate
from uncollapse.training.measured_rows import NotMeasuredError
from uncollapse.training.measures import Measures
from uncollapse.training.measuring import measure_run
from uncollapse.training.noise import noise_probe_run
from uncollapse.training.run import Run

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "CheckpointStore",
    "Config",
    "Measures",
    "NotMeasuredError",
    "Run",
    "TrainingError",
    "embed",
    "evaluate",
    "load_config",
    "measure_run",
    "noise_probe_run",
    "parse_config",
    "train",
]
