"""Kill runs and let processes meet, many times, and count: `python tools/kills.py`.

`make test` does a few of these; this does 30 kills of each kind and 20 meetings.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import support.hostile_processes as hostile
from support.deadly_network import MORTAL
from uncollapse.data.cache import cached
from uncollapse.data.images import Decoding, FileSource
from uncollapse.data.listing import ImageRef
from uncollapse.sweep import Job, run_jobs
from uncollapse.training import train


def main() -> None:
    """Run what is asked for, a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--meetings", type=int, default=20)
    parser.add_argument("--only", nargs="*", help="alone ranks sweep folder sweeps cache")
    asked = parser.parse_args()
    kinds = {
        "alone": ("kills of one process", kill_alone, asked.kills),
        "ranks": ("kills of a rank under torchrun", kill_ranks, asked.kills),
        "sweep": ("kills in a sweep", kill_sweep, asked.kills),
        "folder": ("times two processes in one folder", meet_in_a_folder, asked.meetings),
        "sweeps": ("times two processes in one sweep", meet_in_a_sweep, asked.meetings),
        "cache": ("times two processes in one image cache", meet_in_a_cache, asked.meetings),
    }
    for name in asked.only or kinds:
        what, work, count = kinds[name]
        with tempfile.TemporaryDirectory() as folder:
            begun = time.monotonic()
            done = work(count, Path(folder))
            spent = time.monotonic() - begun
        print(f"{done} {what}: nothing lost ({spent:.0f} s)", flush=True)


def kill_alone(count: int, folder: Path) -> int:
    """Kill one process that trains, at random events."""
    moments, config = random.Random(0), hostile.tiny_config(folder, steps=120)
    train(config, folder / "undisturbed")
    truth, killed, made = hostile.outcome(folder / "undisturbed"), 0, 0
    while killed < count:
        out = folder / f"run-{made}"
        event, number = moments.choice(list(hostile.EVENTS)), moments.randint(1, 40)
        killed += hostile.train_until(config, out, event, number)
        if (out / "summary.json").exists():  # it got to the end: begin another
            assert hostile.outcome(out) == truth
            made += 1
    train(config, folder / f"run-{made}", resume=True)
    assert hostile.outcome(folder / f"run-{made}") == truth
    return killed


def kill_ranks(count: int, folder: Path) -> int:
    """Kill one of two ranks under torchrun, at random steps."""
    moments, file = random.Random(0), folder / "run.toml"
    config = hostile.tiny_config(folder, steps=120, backbone=MORTAL)
    file.write_text(config.to_toml())
    code, text = hostile.torchrun(file, folder / "undisturbed")
    assert code == 0, text
    truth, killed, made = hostile.outcome(folder / "undisturbed"), 0, 0
    while True:
        out, over = folder / f"run-{made}", folder / f"over-{killed}"
        death = f"{moments.randrange(2)} {moments.randint(1, 60)} {over}"
        _, text = hostile.torchrun(file, out, "--resume", death=death if killed < count else None)
        killed += over.exists()
        if (out / "summary.json").exists():
            assert hostile.outcome(out) == truth, text
            if killed == count:
                return killed
            made += 1


def kill_sweep(count: int, folder: Path) -> int:
    """Kill a worker or the driver of a sweep, at random instants after a first checkpoint."""
    moments = random.Random(0)
    jobs = [Job(f"s{s}", hostile.tiny_config(folder, steps=240, seed=s)) for s in range(3)]
    run_jobs(jobs, folder / "undisturbed", processes=2)
    truth = {job.name: hostile.outcome(folder / "undisturbed" / job.name) for job in jobs}
    killed, made, out = 0, 0, folder / "sweep-0"
    while True:
        driver = hostile.FORK.Process(target=run_jobs, args=(jobs, out), kwargs={"processes": 2})
        driver.start()
        deaths: dict[str, int] = {}  # a run whose process dies three times is given up
        while killed < count and driver.is_alive():
            working = _until(lambda out=out, d=driver: _at_work(out) or not d.is_alive())
            time.sleep(moments.uniform(0, 0.7))
            name = moments.choice(working) if isinstance(working, list) else None
            if name is None or deaths.get(name, 0) == 2 or moments.random() < 0.3:
                workers = [pid for pid in (_owner(out / job.name) for job in jobs) if pid]
                killed += _kill(driver.pid) if driver.is_alive() else 0
                driver.join()
                _until(lambda workers=workers: not any(map(_alive, workers)))
            elif pid := _owner(out / name):
                killed += _kill(pid)
                deaths[name] = deaths.get(name, 0) + 1
                _until(lambda n=name, p=pid, out=out, d=driver: _moved_on(out / n, p, d))
        driver.join(hostile.PATIENCE)
        if all((out / job.name / "summary.json").exists() for job in jobs):
            assert {job.name: hostile.outcome(out / job.name) for job in jobs} == truth
            if killed == count:
                return killed
            made += 1
            out = folder / f"sweep-{made}"


def meet_in_a_folder(count: int, folder: Path) -> int:
    """Two processes in one folder, which is new or holds half of a run."""
    for turn in range(count):
        (folder / f"{turn}").mkdir()
        hostile.meet_in_a_folder(folder / f"{turn}", resumed=turn % 2 == 1)
    return count


def meet_in_a_sweep(count: int, folder: Path) -> int:
    """Two processes in the folder of one sweep."""
    for turn in range(count):
        (folder / f"{turn}").mkdir()
        hostile.meet_in_a_sweep(folder / f"{turn}")
    return count


def meet_in_a_cache(count: int, folder: Path) -> int:
    """Two processes that decode the same images."""
    files = [folder / f"{i}.png" for i in range(40)]
    for i, file in enumerate(files):
        Image.new("RGB", (64, 64), (i, 2 * i, 3 * i)).save(file)
    for turn in range(count):
        _read_one_cache(files, folder / f"cache-{turn}")
    return count


def _read_one_cache(files: list[Path], folder: Path) -> None:
    """One of two processes builds the cache, both read what decoding gives."""
    source = FileSource([ImageRef(path) for path in files], Decoding((6, 6)))
    truth = int(source.read(torch.arange(len(source))).sum())
    answers, start = hostile.FORK.SimpleQueue(), hostile.FORK.Barrier(2)
    children = [
        hostile.FORK.Process(target=_read, args=(source, folder, start, answers)) for _ in range(2)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
    totals, built = zip(answers.get(), answers.get(), strict=True)
    assert totals == (truth, truth)
    assert sum(built) == 1
    assert sorted(p.suffix for p in folder.iterdir()) == [".bin", ".json"]


def _read(source: FileSource, folder: Path, start, answers) -> None:
    built: list[int] = []
    start.wait()
    images = cached(source, "x", folder=folder, progress=lambda done, total: built.append(done))
    answers.put((int(images.source.read(torch.arange(len(source))).sum()), len(built)))


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
    pause, end = threading.Event(), time.monotonic() + hostile.PATIENCE
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        pause.wait(0.005)
    raise AssertionError("it never happened")


if __name__ == "__main__":
    main()
