"""A sweep on a real Ray cluster of two nodes, one of whose workers is killed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from sweep_helpers import TINY, log
from uncollapse.sweep import Job
from uncollapse.sweep.jobs import perform
from uncollapse.training import parse_config

pytestmark = pytest.mark.slow

pytest.importorskip("ray")

LONG = {
    **TINY,
    "model": {"backbone": "gated_network:network", "dim": 4},
    "train": {**TINY["train"], "steps": 30, "checkpoint_every": 5},
}
JOBS = [Job(f"run-{seed}", parse_config({**LONG, "seed": seed})) for seed in range(3)]
# In a process of its own: Ray leaves threads and warnings behind.
DRIVER = f"""
import os, signal, sys, threading
sys.path[:0] = {[str(Path(__file__).parent), *sys.path]!r}
from pathlib import Path
from gated_network import Gate
out = Path(sys.argv[1])
gate = Gate(out.with_name("gate"), os.environ)  # before there are workers to inherit it
from ray.cluster_utils import Cluster
from rich.console import Console
from sweep_helpers import writer
from test_ray import JOBS
from uncollapse.sweep.jobs import drive
from uncollapse.sweep.engines import RayEngine

node = dict(num_cpus=1, object_store_memory=80_000_000, include_dashboard=False)
cluster = Cluster(initialize_head=True, head_node_args=node)
cluster.add_node(num_cpus=1, object_store_memory=80_000_000)
ended = threading.Event()

def answer():
    wanted = lambda pid: pid == writer(out / "run-1")
    print("killed", gate.kill_one(wanted, lambda pid: os.kill(pid, signal.SIGKILL), ended.is_set))

helper = threading.Thread(target=answer)
helper.start()
engine = RayEngine(out, address=cluster.address)
print("slots", engine.slots)
drive(JOBS, engine, total=len(JOBS), console=Console())
ended.set()
helper.join()
cluster.shutdown()
"""


def test_a_killed_ray_worker_changes_nothing(tmp_path):
    runs = tmp_path / "runs"
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(runs)], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    assert "slots 2" in done.stdout
    assert re.search(r"killed \[[0-9]+\]", done.stdout)
    assert done.stdout.count("finished") == 4  # a line a run, and the count
    for job in JOBS:
        perform(job.config.model_dump(), str(tmp_path / "alone" / job.name))
        assert log(runs / job.name) == log(tmp_path / "alone" / job.name)
