"""Many runs: a grid or a search over configs, on this machine's cores or on a cluster."""

from uncollapse.sweep.driver import run_jobs
from uncollapse.sweep.job import Job, Outcome
from uncollapse.sweep.parse import load_sweep, parse_sweep
from uncollapse.sweep.results import diameters, is_collapsed
from uncollapse.sweep.spec import Sweep

__all__ = [
    "Job",
    "Outcome",
    "Sweep",
    "diameters",
    "is_collapsed",
    "load_sweep",
    "parse_sweep",
    "run_jobs",
]
