"""Sweep losses on Ray: each run in a process of the cluster, finished runs never made again.

    pip install 'uncollapse[ray]'
    python examples/ray_sweep.py

Without `--address` Ray starts on this machine alone and is stopped at the end. The same sweep as a
file is `uncollapse sweep sweep.toml --engine ray --address auto`.
"""

import argparse
import tempfile
import tomllib
from pathlib import Path

from uncollapse.sweep import parse_sweep
from uncollapse.sweep.engines import RayEngine
from uncollapse.sweep.jobs import drive

SWEEP = """
seeds = 1

[base]
data.name = "digits"
model = {backbone = "linear", dim = 16}
batch = {p = 8, k = 4}
train = {steps = 30, evaluate_every = 30, checkpoint_every = 30}

[grid]
"mining.positives" = ["easy", "hard"]
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Sweep losses on Ray.")
    parser.add_argument("--address", help="of a running cluster, or auto; default: one of its own")
    address = parser.parse_args().address
    with tempfile.TemporaryDirectory() as folder:
        jobs = parse_sweep(tomllib.loads(SWEEP)).jobs()
        engine = RayEngine(Path(folder, "runs"), slots=2, address=address)
        for job, outcome in drive(jobs, engine, total=len(jobs)).items():
            print(job, outcome.status, outcome.run.summary["metrics"]["test/recall@1"])
        engine.close()


if __name__ == "__main__":
    main()
