"""Processes that are killed at a stated event, or that want the same folder.

A child kills itself when it is about to call something for the n-th time, and of two that meet, the
one that works waits until the other was refused: nothing depends on how fast the machine is. Forked
children have everything imported already. `AssertionError` where something is lost.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import tomlkit
import torch
from safetensors.torch import load_file

from support.configs import STATEFUL, merged, small_config
from support.deadly_network import DEATH
from uncollapse.cli import app
from uncollapse.cli.printing import run as run_command
from uncollapse.sweep import grid
from uncollapse.training import Run, checkpoint, train
from uncollapse.training.log import Log
from uncollapse.training.manifest import Manifest
from uncollapse.training.measurer import Measurer
from uncollapse.training.session import Session

FORK = multiprocessing.get_context("fork")
PATIENCE = 300.0  # seconds after which something hangs
# What a training process may be about to do when it is killed.
EVENTS = {
    "measure the start": (Measurer, "take_before"),
    "make a step": (Session, "advance"),
    "write a line": (Log, "write"),
    "write the weights": (checkpoint, "save_file"),
    "list a checkpoint that is in place": (Manifest, "write"),
    "remove old checkpoints": (checkpoint.shutil, "rmtree"),
    "measure the end": (Measurer, "take_after"),
}


def tiny_config(folder, *, steps=24, seed=0, backbone="mlp"):
    """A short run, saved every few steps; its data is written into the folder."""
    data = folder / "data"
    if not data.exists():
        data.mkdir(parents=True)
        rng = np.random.default_rng(0)
        labels = np.repeat(np.arange(4), 20)
        centres = rng.integers(40, 215, (4, 1, 2, 3))
        for split in ("train", "test"):
            images = centres[labels] + rng.integers(-40, 40, (80, 1, 2, 3))
            np.savez(data / f"{split}.npz", images=images.astype(np.uint8), labels=labels)
    each = {"log_every": 1, "evaluate_every": 12, "checkpoint_every": 4}
    settings = {
        "data": {"name": "arrays", "root": str(data)},
        "model": {"backbone": backbone},
        "batch": {"p": 4, "k": 5},
        "evaluate": {"ks": [1], "max_samples": None},
        "train": {"steps": steps, **each},
    }
    return small_config(seed, **merged(STATEFUL, settings))


def outcome(path):
    """The weights a run ended with, and its log, which has every step once."""
    run = Run.open(path)
    assert run.finished, f"{path} did not finish"
    steps = [line["step"] for line in run.metrics() if "loss" in line]
    assert steps == list(range(1, run.config.train.steps + 1)), "a step is repeated or missing"
    last = run.checkpoints.steps()[-1]
    weights = load_file(run.checkpoints.place(last) / "weights.safetensors")
    tensors = {name: tensor.numpy().tobytes() for name, tensor in weights.items()}
    return tensors, run.metrics_file.read_bytes()


def train_until(config, out, event, count):
    """Train in a child that kills itself before it does that for the `count`-th time.

    Returns whether it was killed; it was not where it has done that less often.
    """
    child = FORK.Process(target=_train_until, args=(config, out, event, count))
    child.start()
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL), f"the child ended with {child.exitcode}"
    return child.exitcode != 0


def _train_until(config, out, event, count):
    torch.set_num_threads(1)
    owner, name = EVENTS[event]
    work, calls = getattr(owner, name), [0]

    def last_time(*args, **kwargs):
        calls[0] += 1
        if calls[0] == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return work(*args, **kwargs)

    setattr(owner, name, last_time)
    train(config, out, resume=True)


def torchrun(file, out, *more, death=None):
    """Train on two ranks: the exit code, and what they say. `death` is that of `deadly_network`."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--standalone", "-m", "uncollapse", "train", str(file), "--out", str(out), *more]
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    environment |= {} if death is None else {DEATH: death}
    job = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return job.returncode, " ".join((job.stdout + job.stderr).split())


def meet_in_a_folder(folder, *, resumed):
    """Two processes train into one folder, or go on with one run: one does, one says why not."""
    config, file, out = tiny_config(folder, steps=12), folder / "run.toml", folder / "run"
    file.write_text(config.to_toml())
    words = ["train", str(file), "--out", str(out)]
    if resumed:
        assert train_until(config, out, "make a step", 6)
        words.append("--resume")
    train(config, folder / "undisturbed")
    _one_wins([words, words], (Session, "advance"), out)
    assert outcome(out) == outcome(folder / "undisturbed")


def meet_in_a_sweep(folder):
    """Two processes make one sweep: one does, one says why not."""
    base, file, out = tiny_config(folder, steps=4).to_values(), folder / "s.toml", folder / "sweep"
    file.write_text(tomlkit.dumps({"seeds": [0], "base": base, "grid": {"batch.k": [3, 5]}}))
    words = ["sweep", str(file), "--out", str(out), "--jobs", "1"]
    _one_wins([words, words], (grid, "make_plan"), out)
    assert (out / "results.csv").read_text().count("finished") == 2


def _one_wins(commands, work, out):
    """Start both together; the one that gets to its `work` waits until the other has ended."""
    start, refused, ends = FORK.Barrier(len(commands)), FORK.Event(), []
    for number, words in enumerate(commands):
        output = out.parent / f"output-{number}"
        child = FORK.Process(target=_command, args=(words, output, start, refused, work))
        child.start()
        ends.append((child, output))
    for child, _ in ends:
        child.join()
    codes = sorted(child.exitcode for child, _ in ends)
    text = next(output.read_text() for child, output in ends if child.exitcode)
    assert codes == [0, 2], text
    assert f"{out} is being written by process" in text
    assert "Traceback" not in text


def _command(words, output, start, refused, work):
    handle = os.open(output, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(handle, stream)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    torch.set_num_threads(1)
    done = getattr(*work)

    def after_the_other(*args, **kwargs):
        assert refused.wait(PATIENCE), "two processes work in one folder"
        return done(*args, **kwargs)

    setattr(*work, after_the_other)
    start.wait()
    code = run_command(app, words)
    refused.set()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
