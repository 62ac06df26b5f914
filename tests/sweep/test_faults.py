"""Real processes, really killed: afterwards every run is there once, as if nothing had happened."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from support.gated_network import Gate
from support.sweep_helpers import LONG_JOBS as JOBS
from support.sweep_helpers import TINY, log, until, writer
from uncollapse.sweep import Job, run_jobs
from uncollapse.sweep.engines import LocalEngine
from uncollapse.sweep.jobs import drive, perform
from uncollapse.training import parse_config

pytestmark = pytest.mark.processes

DRIVER = f"""
import sys
sys.path[:0] = {sys.path!r}
from support.sweep_helpers import LONG_JOBS as JOBS
from uncollapse.sweep import run_jobs
run_jobs(JOBS, sys.argv[1], processes=2)
"""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed")
    for job in JOBS:
        assert perform(job.config.model_dump(), str(out / job.name))["status"] == "finished"
    return {job.name: log(out / job.name) for job in JOBS}


def _gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_killed_driver_or_worker_changes_no_run(undisturbed, tmp_path, monkeypatch):
    environment = dict(os.environ)
    gate, out = Gate(tmp_path / "first", environment), tmp_path / "runs"
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(out)], env=environment)
    workers = {gate.pid(gate.arrival()), gate.pid(gate.arrival())}
    assert workers == {writer(out / "run-0"), writer(out / "run-1")}
    driver.kill()
    driver.wait()
    assert until(lambda: all(map(_gone, workers)))  # nobody is left who could write
    assert not list(out.glob("*/summary.json"))

    with monkeypatch.context() as patch:
        environment = dict(os.environ)
        gate = Gate(tmp_path / "second", environment)
        for name, value in environment.items():
            patch.setenv(name, value)
        with gate.killing(lambda pid: pid == writer(out / "run-2")) as killed:
            console = Console(file=io.StringIO(), width=200)
            outcomes = run_jobs(JOBS, out, processes=1, console=console)
    assert len(killed) == 1
    assert [(o.name, o.status) for o in outcomes] == [(job.name, "finished") for job in JOBS]
    assert {job.name: log(out / job.name) for job in JOBS} == undisturbed
    assert outcomes[0].run.summary["step"] == 30


def test_a_run_that_dies_every_time_is_given_up_with_the_signals_name(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    config = parse_config(
        {**TINY, "model": {"backbone": "support.deadly_network:network", "dim": 2}}
    )
    engine = LocalEngine(tmp_path, slots=1, retries=1)
    console = Console(file=io.StringIO(), width=200)
    outcome = drive([Job("deadly", config)], engine, total=1, console=console)["deadly"]
    assert outcome.status == "failed"
    assert "killed by SIGKILL; it died 2 times" in outcome.error
    assert "SIGKILL" in console.file.getvalue()
