"""What the engine costs beside a bare loop of the same model, loss and batches, in one run.

python benchmarks/training.py

CPU time, user and system, on one thread. Each of the two has a process of its own, and takes turns
with the other: the engine keeps freed memory (`uc.training.keep_memory`), the bare loop is as one
writes it.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from _timing import one_thread
from uncollapse.data import LabelledImages, TensorSource
from uncollapse.training import keep_memory, parse_config
from uncollapse.training.assemble import (
    build_loss,
    build_model,
    build_optimizer,
    build_sampler,
    load_data,
)
from uncollapse.training.config import Config
from uncollapse.training.engine import train
from uncollapse.training.session import Session

ROUNDS = 5


@dataclass(frozen=True)
class Case:
    """A network with its images, the steps of a round, and the bar of engine / bare."""

    backbone: str
    dim: int
    p: int
    k: int
    shape: tuple[int, int, int] | None  # None: MNIST, or the digits in its place
    steps: int
    bar: float

    def config(self) -> Config:
        """The run."""
        return parse_config(
            {
                "data": {"name": "mnist-parity" if self.shape is None else "arrays"},
                "model": {"backbone": self.backbone, "dim": self.dim},
                "batch": {"p": self.p, "k": self.k},
                "mining": {"positives": "easy", "negatives": "semihard"},
                "train": {"steps": 60, "evaluate_every": 10_000, "checkpoint_every": 10_000},
            }
        )

    def data(self) -> LabelledImages:
        """Its images: random ones where a shape is given."""
        if self.shape is None:
            return load_data(self.config(), "train")
        draw = torch.Generator().manual_seed(0)
        labels = torch.arange(40).repeat_interleave(16)
        pixels = torch.randint(0, 256, (len(labels), *self.shape), generator=draw)
        return LabelledImages(TensorSource(pixels.to(torch.uint8)), labels)


CASES = {
    "mnist-cnn 28 x 28, batch 60": Case("mnist-cnn", 16, 2, 30, None, 60, 1.10),
    "conv2 64 x 64, batch 144": Case("conv2", 128, 18, 8, (3, 64, 64), 4, 0.7),
    "resnet18 64 x 64, batch 144": Case("resnet18", 128, 18, 8, (3, 64, 64), 2, 1.02),
}


class Bare:
    """The loop one writes by hand."""

    def __init__(self, case: Case) -> None:
        self.config, self.data = case.config(), case.data()
        self.model = build_model(self.config, self.data.shape)
        self.loss = build_loss(self.config, self.data)
        self.optimizer = build_optimizer(self.config, self.model, self.loss)
        self.classes = self.data.label_index
        self.batches = iter(build_sampler(self.config, self.data))

    def advance(self) -> None:
        """One step."""
        try:
            rows = next(self.batches)
        except StopIteration:
            self.batches = iter(build_sampler(self.config, self.data))
            rows = next(self.batches)
        images, _ = self.data[rows]
        loss = self.loss(self.model(images), self.classes[rows])
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()


def serve(kind: str, name: str) -> None:
    """In a process of its own: so many steps for each line read, and the CPU time they took."""
    one_thread()
    torch.manual_seed(0)
    case = CASES[name]
    if kind == "engine":
        keep_memory()
    loop = Bare(case) if kind == "bare" else Session(case.config(), case.data())
    for _ in sys.stdin:
        begun = resource.getrusage(resource.RUSAGE_SELF)
        for _ in range(case.steps):
            loop.advance()
        ended = resource.getrusage(resource.RUSAGE_SELF)
        user, system = ended.ru_utime - begun.ru_utime, ended.ru_stime - begun.ru_stime
        print("TIME", user / case.steps, system / case.steps, flush=True)


def start(kind: str, name: str) -> subprocess.Popen[str]:
    variables = dict(os.environ, OMP_NUM_THREADS="1")
    command = [sys.executable, __file__, kind, name]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=variables)


def ask(process: subprocess.Popen[str]) -> tuple[float, float]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    line = next(line for line in process.stdout if line.startswith("TIME"))
    user, system = map(float, line.split()[1:])
    return user, system


def compare(name: str) -> bool:
    """Print one case; whether its bar is reached."""
    both = [start(kind, name) for kind in ("bare", "engine")]
    for process in both:
        ask(process)  # warm
    rounds = [[ask(process) for process in both] for _ in range(ROUNDS)]
    for process in both:
        process.communicate("")
    ratios = sorted(sum(ours) / sum(theirs) for theirs, ours in rounds)
    ratio, bar = ratios[len(ratios) // 2], CASES[name].bar
    print(name)
    for place, kind in enumerate(("bare loop", "engine, monitor included")):
        user, system = min((one[place] for one in rounds), key=sum)
        print(f"  {kind:26} {1e3 * user:8.1f} ms user + {1e3 * system:6.1f} ms system a step")
    outcome = "pass" if ratio <= bar else "MISS"
    print(f"  {'engine / bare':26} {ratio:8.3f}   bar {bar:.2f}   {outcome}", flush=True)
    return ratio <= bar


def main() -> None:
    one_thread()
    outcomes = [compare(name) for name in CASES]
    config = next(iter(CASES.values())).config()
    with tempfile.TemporaryDirectory() as folder:
        begun = time.process_time()
        train(config, Path(folder) / "run")
        whole = time.process_time() - begun
    steps = config.train.steps
    print(f"whole run of {steps} steps with 2 evaluations and a checkpoint: {whole:.1f} s")
    sys.exit(not all(outcomes))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        serve(*sys.argv[1:])
    else:
        main()
