"""Processes that are killed, or that want the same folder: each function does it so many times.

They raise `AssertionError` where something is lost, and return what they did. Forked children have
everything imported already, so that they really meet, and die while they work.
"""

import contextlib
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import tomlkit
import torch
from safetensors.torch import load_file

from uncollapse.cli import app
from uncollapse.cli.errors import run as run_command
from uncollapse.data.cache import cached
from uncollapse.data.images import Decoding, FileSource
from uncollapse.data.listing import ImageRef
from uncollapse.sweep import Job, run_jobs
from uncollapse.training import Config, Run, parse_config, train

FORK = multiprocessing.get_context("fork")
PATIENCE = 300.0  # seconds after which something hangs


def tiny_config(folder: Path, *, steps: int = 120, seed: int = 0) -> Config:
    """A run of a second, saved every few steps; its data is written into the folder."""
    data = folder / "data"
    if not data.exists():
        data.mkdir(parents=True)
        rng = np.random.default_rng(0)
        labels = np.repeat(np.arange(4), 20)
        for split in ("train", "test"):
            points = rng.normal(size=(4, 6))[labels] + rng.normal(size=(80, 6))
            np.savez(data / f"{split}.npz", features=points.astype(np.float32), labels=labels)
    return parse_config(
        {
            "seed": seed,
            "data": {"name": "arrays", "root": str(data)},
            "model": {"backbone": "mlp", "dim": 4, "hidden": [16], "normalize": True},
            "batch": {"p": 4, "k": 5},
            "mining": {"positives": "random", "negatives": "distance"},
            "loss": {"name": "margin", "beta_per": "class"},
            "optimizer": {"schedule": "cosine", "warmup": 5, "clip": 1.0},
            "evaluate": {"ks": [1]},
            "train": {
                "steps": steps,
                "log_every": 1,
                "evaluate_every": 20,
                "checkpoint_every": 4,
                "device": "cpu",
            },
        }
    )


def outcome(path: Path) -> tuple[dict[str, bytes], bytes]:
    """The weights a run ended with, and its log, which has every step once."""
    run = Run.open(path)
    assert run.finished, f"{path} did not finish"
    steps = [line["step"] for line in run.metrics() if "loss" in line]
    assert steps == list(range(1, run.config.train.steps + 1)), "a step is repeated or missing"
    last = run.checkpoints.steps()[-1]
    weights = load_file(run.checkpoints.place(last) / "weights.safetensors")
    tensors = {name: tensor.numpy().tobytes() for name, tensor in weights.items()}
    return tensors, run.metrics_file.read_bytes()


def kill_alone(count: int, folder: Path, seed: int = 0) -> int:
    """Kill one process that trains, at random instants after its first checkpoint."""
    moments, config = random.Random(seed), tiny_config(folder)
    begun = time.monotonic()
    train(config, folder / "undisturbed")
    whole, truth = time.monotonic() - begun, outcome(folder / "undisturbed")
    killed, made, out = 0, 0, folder / "run-0"
    while killed < count:
        child = FORK.Process(target=_train, args=(config, out))
        child.start()
        _until(lambda out=out, child=child: _saved(out) or not child.is_alive())
        child.join(moments.uniform(0, 0.6 * whole))
        killed += _kill(child.pid) if child.is_alive() else 0
        child.join()
        if (out / "summary.json").exists():  # it got to the end: begin another
            assert outcome(out) == truth
            made += 1
            out = folder / f"run-{made}"
    train(config, out, resume=True)
    assert outcome(out) == truth
    return killed


def kill_ranks(count: int, folder: Path, seed: int = 0) -> int:
    """Kill one of two ranks under torchrun, at random instants after the first checkpoint."""
    moments, config = random.Random(seed), tiny_config(folder, steps=240)
    file = folder / "run.toml"
    file.write_text(config.to_toml())
    job = _torchrun(file, folder / "undisturbed")
    said = job.communicate(timeout=PATIENCE)[0]
    assert job.returncode == 0, said
    truth, killed, made, out = outcome(folder / "undisturbed"), 0, 0, folder / "run-0"
    while True:
        job = _torchrun(file, out, "--resume")
        if killed < count:
            _until(lambda out=out, job=job: (_saved(out) and _owner(out)) or job.poll() is not None)
            time.sleep(moments.uniform(0, 1.0))
            with contextlib.suppress(ProcessLookupError):  # it got to the end
                killed += _kill(_pid_of_rank(moments.randrange(2), job.pid))
        said = job.communicate(timeout=PATIENCE)[0]
        if (out / "summary.json").exists():
            assert outcome(out) == truth
            if killed == count:
                return killed
            made += 1
            out = folder / f"run-{made}"


def kill_sweep(count: int, folder: Path, seed: int = 0) -> int:
    """Kill a worker or the driver of a sweep, at random instants after a first checkpoint."""
    moments = random.Random(seed)
    jobs = [Job(f"s{s}", tiny_config(folder, steps=240, seed=s)) for s in range(3)]
    run_jobs(jobs, folder / "undisturbed", processes=2)
    truth = {job.name: outcome(folder / "undisturbed" / job.name) for job in jobs}
    killed, made, out = 0, 0, folder / "sweep-0"
    while True:
        driver = FORK.Process(target=run_jobs, args=(jobs, out), kwargs={"processes": 2})
        driver.start()
        deaths: dict[str, int] = {}  # a run whose process dies three times is given up
        while killed < count and driver.is_alive():
            found = _until(lambda out=out, d=driver: _at_work(out) or not d.is_alive())
            time.sleep(moments.uniform(0, 0.7))
            name = moments.choice(found) if isinstance(found, list) else None
            if name is None or deaths.get(name, 0) == 2 or moments.random() < 0.3:
                workers = [pid for pid in (_owner(out / job.name) for job in jobs) if pid]
                killed += _kill(driver.pid) if driver.is_alive() else 0
                driver.join()
                _until(lambda workers=workers: not any(map(_alive, workers)))
            elif pid := _owner(out / name):
                killed += _kill(pid)
                deaths[name] = deaths.get(name, 0) + 1
                _until(lambda n=name, p=pid, out=out, d=driver: _moved_on(out / n, p, d))
        driver.join(PATIENCE)
        if all((out / job.name / "summary.json").exists() for job in jobs):
            assert {job.name: outcome(out / job.name) for job in jobs} == truth
            if killed == count:
                return killed
            made += 1
            out = folder / f"sweep-{made}"


def meet_in_a_folder(count: int, folder: Path) -> int:
    """Two processes train into one folder, or go on with one run: one does, one says why not."""
    config = tiny_config(folder, steps=40)
    file = folder / "run.toml"
    file.write_text(config.to_toml())
    train(config, folder / "undisturbed")
    for turn in range(count):
        out = folder / f"run-{turn}"
        words = ["train", str(file), "--out", str(out)]
        if turn % 2:
            _train(config, out, stop_after=20)
            words.append("--resume")
        _one_wins(_meet(folder, [words, words]), out)
        assert outcome(out) == outcome(folder / "undisturbed")
    return count


def meet_in_a_sweep(count: int, folder: Path) -> int:
    """Two processes make one sweep: one does, one says why not."""
    base, file = tiny_config(folder, steps=4).to_values(), folder / "sweep.toml"
    values = {"seeds": [0], "base": base, "grid": {"batch.k": [3, 5]}}
    file.write_text(tomlkit.dumps(values))
    for turn in range(count):
        out = folder / f"sweep-{turn}"
        words = ["sweep", str(file), "--out", str(out), "--jobs", "1"]
        _one_wins(_meet(folder, [words, words]), out)
        assert (out / "results.csv").read_text().count("finished") == 2
    return count


def meet_in_a_cache(count: int, files: list[Path], folder: Path) -> int:
    """Two processes build one image cache: one does, both read what decoding gives."""
    source = FileSource([ImageRef(path) for path in files], Decoding((6, 6)))
    truth = int(source.read(torch.arange(len(source))).sum())
    for turn in range(count):
        place, answers, start = folder / f"cache-{turn}", FORK.Queue(), FORK.Barrier(2)
        children = [
            FORK.Process(target=_read, args=(source, place, start, answers)) for _ in range(2)
        ]
        for child in children:
            child.start()
        found = [answers.get(timeout=PATIENCE) for _ in children]
        for child in children:
            child.join(PATIENCE)
        assert [total for total, _ in found] == [truth, truth]
        assert sum(built for _, built in found) == 1
        assert sorted(p.suffix for p in place.iterdir()) == [".bin", ".json"]
    return count


def _train(config: Config, out: Path, stop_after: int | None = None) -> None:
    torch.set_num_threads(1)
    if stop_after is None:
        train(config, out, resume=True)
        return
    from uncollapse.training.session import Session

    advance = Session.advance

    def interrupted(self):
        values = advance(self)
        if self.step == stop_after:
            os.kill(os.getpid(), signal.SIGINT)
        return values

    Session.advance = interrupted
    try:
        train(config, out)
    finally:
        Session.advance = advance


def _meet(folder: Path, commands: list[list[str]]) -> list[tuple[int, str]]:
    """Run command lines in processes that start together: exit codes, and what they say."""
    start, children = FORK.Barrier(len(commands)), []
    for number, words in enumerate(commands):
        said = folder / f"said-{number}"
        child = FORK.Process(target=_command, args=(words, said, start))
        child.start()
        children.append((child, said))
    for child, _ in children:
        child.join(PATIENCE)
    return [(child.exitcode, said.read_text()) for child, said in children]


def _command(words: list[str], said: Path, start) -> None:
    handle = os.open(said, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(handle, stream)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    torch.set_num_threads(1)
    start.wait()
    code = run_command(app, words)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _one_wins(ends: list[tuple[int, str]], out: Path) -> None:
    assert sorted(code for code, _ in ends) == [0, 2], ends
    said = next(text for code, text in ends if code == 2)
    assert f"{out} is being written by process" in said or "which holds a run" in said, said
    assert "Traceback" not in said


def _read(source: FileSource, place: Path, start, answers) -> None:
    built: list[int] = []
    start.wait()
    found = cached(source, "x", folder=place, progress=lambda done, total: built.append(done))
    answers.put((int(found.source.read(torch.arange(len(source))).sum()), len(built)))


def _torchrun(file: Path, out: Path, *more: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--standalone", "-m", "uncollapse", "train", str(file), "--out", str(out)]
    return subprocess.Popen(
        [*command, *more],
        env=os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _pid_of_rank(rank: int, parent: int) -> int:
    for place in Path("/proc").glob("[0-9]*"):
        try:
            mother = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            environment = (place / "environ").read_bytes().split(b"\0")
        except (OSError, ValueError):
            continue
        if mother == parent and f"RANK={rank}".encode() in environment:
            return int(place.name)
    raise ProcessLookupError(f"rank {rank}")


def _at_work(out: Path) -> list[str]:
    """Runs of a sweep that are being made, and were saved once."""
    if not out.is_dir():
        return []
    return [p.name for p in sorted(out.iterdir()) if p.is_dir() and _saved(p) and _owner(p)]


def _moved_on(path: Path, pid: int, driver) -> bool:
    return (
        _owner(path) not in (None, pid) or (path / "summary.json").exists() or not driver.is_alive()
    )


def _saved(path: Path) -> bool:
    return any(path.glob("checkpoints/step-*/state.pt"))


def _owner(path: Path) -> int | None:
    """The living process that writes a run."""
    try:
        lines = (path / ".lock").read_text().split()
        pid = next(int(line.removeprefix("pid=")) for line in lines if line.startswith("pid="))
    except (OSError, StopIteration):
        return None
    return pid if _alive(pid) else None


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def _kill(pid: int) -> int:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return 0
    return 1


def _until(condition):
    """Wait for what another process does."""
    pause, end = threading.Event(), time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        pause.wait(0.005)
    raise AssertionError("it never happened")
