"""A sweep on a real Ray cluster, one of whose workers is killed."""

import re
import subprocess
import sys

import pytest

from support.sweep_helpers import LONG_JOBS, log
from uncollapse.sweep.jobs import perform

pytestmark = pytest.mark.processes

pytest.importorskip("ray")

# In a process of its own: Ray leaves threads and warnings behind.
DRIVER = f"""
import os, sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from support.gated_network import Gate
out = Path(sys.argv[1])
gate = Gate(out.with_name("gate"), os.environ)  # before there are workers to inherit it
from ray.cluster_utils import Cluster
from rich.console import Console
from support.sweep_helpers import LONG_JOBS, writer
from uncollapse.sweep.jobs import drive
from uncollapse.sweep.engines import RayEngine

nodes, jobs = int(sys.argv[2]), LONG_JOBS[: int(sys.argv[3])]
node = dict(num_cpus=1, object_store_memory=80_000_000)
cluster = Cluster(initialize_head=True, head_node_args=dict(include_dashboard=False, **node))
for _ in range(nodes - 1):
    cluster.add_node(**node)
with gate.killing(lambda pid: pid == writer(out / jobs[-1].name)) as killed:
    engine = RayEngine(out, address=cluster.address)
    print("slots", engine.slots)
    drive(jobs, engine, total=len(jobs), console=Console())
print("killed", killed)
cluster.shutdown()
"""


@pytest.mark.parametrize(("nodes", "runs"), [(1, 1), pytest.param(2, 3, marks=pytest.mark.night)])
def test_a_killed_ray_worker_changes_nothing(tmp_path, nodes, runs):
    command = [sys.executable, "-c", DRIVER, str(tmp_path / "runs"), str(nodes), str(runs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert f"slots {nodes}" in done.stdout
    assert re.search(r"killed \[[0-9]+\]", done.stdout)
    assert done.stdout.count("finished") == runs + 1  # a line per run, and the count
    for job in LONG_JOBS[:runs]:
        perform(job.config.model_dump(), str(tmp_path / "alone" / job.name))
        assert log(tmp_path / "runs" / job.name) == log(tmp_path / "alone" / job.name)
