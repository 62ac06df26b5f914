"""From a config to a trained, evaluated embedding in a run directory."""

from uncollapse.training.checkpoint import Checkpoint, CheckpointError, CheckpointStore
from uncollapse.training.config import Config, load_config, parse_config
from uncollapse.training.engine import TrainingError, train
from uncollapse.training.evaluation import embed, evaluate
from uncollapse.training.noise import noise_probe_run
from uncollapse.training.run import Run

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "CheckpointStore",
    "Config",
    "Run",
    "TrainingError",
    "embed",
    "evaluate",
    "load_config",
    "noise_probe_run",
    "parse_config",
    "train",
]
