"""A rank killed under the real torchrun, and the run resumed: as a user would."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from uncollapse.training import Run, parse_config

pytestmark = pytest.mark.slow

CONFIG = parse_config(
    {
        "data": {"name": "digits"},
        "model": {"backbone": "mlp", "dim": 4, "hidden": [16]},
        "batch": {"p": 6, "k": 4},
        "mining": {"positives": "random", "negatives": "semihard"},
        "evaluate": {"max_samples": 100},
        "train": {
            "steps": 400,
            "evaluate_every": 200,
            "checkpoint_every": 20,
            "device": "cpu",
        },
    }
)


def torchrun(file, out, *more):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--standalone", "-m", "uncollapse", "train", str(file), "--out", str(out)]
    return subprocess.Popen(
        [*command, *more],
        env=os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def pid_of_rank(rank, parent):
    """The process torchrun started for a rank."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            mother = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            environment = (place / "environ").read_bytes().split(b"\0")
        except (OSError, ValueError):
            continue
        if mother == parent and f"RANK={rank}".encode() in environment:
            return int(place.name)
    raise ProcessLookupError(f"rank {rank}")


def ended(process):
    try:
        process.wait(timeout=0.02)
    except subprocess.TimeoutExpired:
        return False
    return True


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds a rank through /proc")
def test_a_rank_killed_under_torchrun_costs_the_steps_since_the_last_checkpoint(tmp_path):
    file, out = tmp_path / "run.toml", tmp_path / "killed"
    file.write_text(CONFIG.to_toml())
    job = torchrun(file, out)
    while not Run(out).checkpoints.steps():
        assert not ended(job), job.communicate()[0]
    os.kill(pid_of_rank(1, job.pid), signal.SIGKILL)
    told = " ".join(job.communicate()[0].split())
    assert job.returncode != 0
    assert "rank 0 of 2 cannot reach another rank, which has ended or hangs" in told
    assert "is saved: go on with the same command and --resume" in told
    assert not Run(out).finished

    again, other = torchrun(file, out, "--resume"), torchrun(file, tmp_path / "undisturbed")
    said, _ = again.communicate()
    assert again.returncode == 0, said
    assert said.count("finished at step 400") == 1  # rank 0 alone speaks
    said, _ = other.communicate()
    assert other.returncode == 0, said
    assert (out / "report.html").is_file()
    assert list(Run(out).metrics()) == list(Run(tmp_path / "undisturbed").metrics())
