"""What the engine costs beside a bare loop of the same model, loss and batches, in one run.

python benchmarks/training.py
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import torch

from _timing import one_thread
from uncollapse.training import parse_config
from uncollapse.training.assemble import (
    build_loss,
    build_model,
    build_optimiser,
    build_sampler,
    load_data,
)
from uncollapse.training.engine import train
from uncollapse.training.session import Session

STEPS, ROUNDS, BAR = 60, 5, 1.10
CONFIG = parse_config(
    {
        "data": {"name": "mnist-parity"},
        "model": {"backbone": "mnist-cnn", "dim": 16},
        "batch": {"p": 2, "k": 30},
        "mining": {"positives": "easy", "negatives": "semihard"},
        "train": {"steps": STEPS, "evaluate_every": 10_000, "checkpoint_every": 10_000},
    }
)


class Bare:
    """The loop one writes by hand."""

    def __init__(self) -> None:
        self.data = load_data(CONFIG, "train")
        self.model = build_model(CONFIG, self.data.shape)
        self.loss = build_loss(CONFIG, self.data)
        self.optimiser = build_optimiser(CONFIG, self.model, self.loss)
        self.classes = self.data.label_index
        self.batches = iter(build_sampler(CONFIG, self.data))

    def step(self) -> None:
        """One step."""
        try:
            rows = next(self.batches)
        except StopIteration:
            self.batches = iter(build_sampler(CONFIG, self.data))
            rows = next(self.batches)
        images, _ = self.data[rows]
        loss = self.loss(self.model(images), self.classes[rows])
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()


def seconds(call: object) -> float:
    begun = time.process_time()
    for _ in range(STEPS):
        call()  # type: ignore[operator]
    return (time.process_time() - begun) / STEPS


def main() -> None:
    one_thread()
    torch.manual_seed(0)
    bare, session = Bare(), Session(CONFIG, load_data(CONFIG, "train"))
    seconds(bare.step), seconds(session.advance)
    pairs = [(seconds(bare.step), seconds(session.advance)) for _ in range(ROUNDS)]
    ratios = sorted(ours / theirs for theirs, ours in pairs)
    ratio = ratios[len(ratios) // 2]
    outcome = "pass" if ratio <= BAR else "MISS"
    print(f"bare loop      {1e3 * min(p[0] for p in pairs):8.2f} ms a step")
    print(f"engine         {1e3 * min(p[1] for p in pairs):8.2f} ms a step, monitor included")
    print(f"engine / bare  {ratio:8.3f}   bar {BAR:.2f}   {outcome}")
    with tempfile.TemporaryDirectory() as folder:
        begun = time.process_time()
        train(CONFIG, Path(folder) / "run")
        whole = time.process_time() - begun
    print(f"whole run of {STEPS} steps with 2 evaluations and a checkpoint: {whole:.1f} s")
    sys.exit(ratio > BAR)


if __name__ == "__main__":
    main()
