"""Many runs: a grid or a search over configs, on this machine's cores or on a cluster."""

from uncollapse.sweep.jobs import Job, Outcome, run_jobs
from uncollapse.sweep.results import is_collapsed
from uncollapse.sweep.spec import Sweep, load_sweep, parse_sweep

__all__ = ["Job", "Outcome", "Sweep", "is_collapsed", "load_sweep", "parse_sweep", "run_jobs"]
