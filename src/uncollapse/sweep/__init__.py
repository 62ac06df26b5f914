"""Many runs: a grid or a search over configs, on this machine's cores or on a cluster."""

from uncollapse.sweep.drive import run_jobs
from uncollapse.sweep.job import Job, Outcome

__all__ = ["Job", "Outcome", "run_jobs"]
