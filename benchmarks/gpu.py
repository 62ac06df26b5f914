"""Losses on a device beside pytorch-metric-learning: time of a step, memory, waits of the host.

Forward and backward, wall time with the device synchronised, interleaved medians of one run.
Without a GPU the code a GPU would run is run on the CPU (`device_path`): it shows that the path
works and how often the host would wait, not how fast a GPU is.

    python benchmarks/gpu.py [--device cuda] [--n 256 1024 4096]
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning import miners
from torch import Tensor

from uncollapse.distances.frame import device_path
from uncollapse.losses import MultiSimilarityLoss, TripletLoss
from uncollapse.mining import Miner

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.device import waits_of

DIM, MARGIN, EACH = 128, 0.2, 4
Step = Callable[[], Tensor]
CASES = ("batch-hard", "easy x semi-hard", "all triplets", "multi-similarity")


def contenders(case: str, x: Tensor, labels: Tensor) -> dict[str, Step]:
    """Ours and PML's of one case; both normalise the embeddings."""
    mined = {
        "batch-hard": (Miner("hard", "hard"), miners.BatchHardMiner()),
        "easy x semi-hard": (
            Miner("easy", "semihard"),
            miners.BatchEasyHardMiner("easy", "semihard"),
        ),
        "all triplets": (None, None),
        "multi-similarity": (
            Miner("multi_similarity", "multi_similarity"),
            miners.MultiSimilarityMiner(0.1),
        ),
    }
    own, theirs = mined[case]
    if case == "multi-similarity":
        ours: torch.nn.Module = MultiSimilarityLoss(base=0.5, miner=own)
        pml = pml_losses.MultiSimilarityLoss(2, 50, 0.5)
    else:
        ours = TripletLoss(margin=MARGIN, miner=own, normalize=True, reduction="nonzero")
        pml = pml_losses.TripletMarginLoss(margin=MARGIN)
    return {
        "uncollapse": lambda: ours(x, labels),
        "PML": lambda: pml(x, labels, theirs(x, labels) if theirs else None),
    }


def batch(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """`n` shuffled rows in overlapping classes of four."""
    generator = torch.Generator().manual_seed(0)
    labels = (torch.arange(n) // EACH)[torch.randperm(n, generator=generator)]
    centres = torch.randn(-(-n // EACH), DIM, generator=generator)
    x = torch.randn(n, DIM, generator=generator) + 0.5 * centres[labels]
    return x.to(device).requires_grad_(), labels.to(device)


def timed(steps: dict[str, Step], x: Tensor, rounds: int) -> dict[str, float]:
    """Median seconds of a forward and backward pass of each, called in turn."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(rounds + 1):
        for name, step in steps.items():
            _settle(x)
            begun = time.perf_counter()
            _run(step, x)
            _settle(x)
            if number:  # the first loads and compiles
                times[name].append(time.perf_counter() - begun)
    return {name: statistics.median(values) for name, values in times.items()}


def peak(step: Step, x: Tensor) -> float:
    """Megabytes a step allocates at its peak; NaN off CUDA."""
    if x.device.type != "cuda":
        return float("nan")
    torch.cuda.reset_peak_memory_stats(x.device)
    before = torch.cuda.memory_allocated(x.device)
    _run(step, x)
    return (torch.cuda.max_memory_allocated(x.device) - before) / 2**20


def _run(step: Step, x: Tensor) -> None:
    x.grad = None
    step().backward()


def _waits(step: Step, x: Tensor) -> int:
    with waits_of(x.device.type) as waits:
        _run(step, x)
    return len(waits)


def _settle(x: Tensor) -> None:
    if x.device.type == "cuda":
        torch.cuda.synchronize(x.device)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    found = "cuda" if torch.cuda.is_available() else "cpu"
    options.add_argument("--device", default=found)
    options.add_argument("--n", type=int, nargs="+", default=[256, 1024])
    options.add_argument("--rounds", type=int, default=7)
    given = options.parse_args()
    device = torch.device(given.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU, device path"
    print(f"{name}, torch {torch.__version__}, dim {DIM}, classes of {EACH}")
    head = ("case", "N", "PML ms", "ours ms", "ratio", "MB PML", "MB ours", "waits PML", "ours")
    print("{:18}{:>6}{:>9}{:>9}{:>7}{:>8}{:>9}{:>13}{:>7}".format(*head))
    with device_path() if device.type == "cpu" else contextlib.nullcontext():
        for case in CASES:
            for n in given.n:
                x, labels = batch(n, device)
                steps = contenders(case, x, labels)
                seconds = timed(steps, x, given.rounds)
                waits = {who: _waits(step, x) for who, step in steps.items()}
                memory = {who: peak(step, x) for who, step in steps.items()}
                theirs, ours = seconds["PML"], seconds["uncollapse"]
                print(
                    f"{case:18}{n:6}{theirs * 1e3:9.2f}{ours * 1e3:9.2f}{theirs / ours:6.1f}x"
                    f"{memory['PML']:8.0f}{memory['uncollapse']:9.0f}{waits['PML']:11}{waits['uncollapse']:7}"
                )
    print("waits: values read, and operations whose shape depends on values, of one step")


if __name__ == "__main__":
    main()
