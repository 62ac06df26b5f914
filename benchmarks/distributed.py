"""The constants of the cost model in docs/scaling.md, and the model extended to 1,000 accelerators.

python benchmarks/distributed.py

Compute is CPU time of one thread. Messages are given in CPU time of a rank, its transport threads
included, and in wall time, the least of several tries: on a busy machine only the former counts.
It fails if ranks do not give one process's gradients.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import torch

from _timing import gemm, interleaved, one_thread
from uncollapse import backbones
from uncollapse.data import LabelledImages, TensorSource
from uncollapse.losses import TripletLoss
from uncollapse.metrics import retrieval
from uncollapse.mining import Miner
from uncollapse.training import parse_config
from uncollapse.training.distributed import Ranks, gather, join, sum_gradients
from uncollapse.training.session import Session

DIM, TRIES, EXACT = 128, 12, 1e-5
STEP = parse_config(
    {
        "model": {"backbone": "mnist-cnn", "dim": DIM},
        "batch": {"p": 16, "k": 8},
        "mining": {"positives": "hard", "negatives": "hard"},
        "guard": {"action": "off"},
        "train": {"device": "cpu"},
    }
)


def main() -> None:
    one_thread()
    if "WORLD_SIZE" in os.environ:
        with join(torch.device("cpu")) as ranks:
            sys.exit(among_ranks(ranks))
    print("Compute, CPU time of one thread")
    flop = interleaved({"gemm": gemm(1024, DIM)})["gemm"] / (2 * 1024**2 * DIM)
    print(f"  product                  {flop * 1e12:10.1f} ps a flop ({1e-9 / flop:.1f} GFLOP/s)")
    for name in ("conv2", "mnist-cnn"):
        print(f"  {name:24} {1e6 * per_sample(name):10.1f} µs a sample, forward and backward")
    for size in (256, 1024, 4096):
        spent = loss_seconds(size)
        products = spent / (2 * size**2 * DIM * flop)
        print(
            f"  loss of B = {size:<12} {1e3 * spent:10.2f} ms, {products:.2f} products B x B x dim"
        )
    one = step_seconds(Session(STEP, images()))
    print(f"  step of B = 128, 1 rank  {1e3 * one:10.2f} ms")
    points, labels = torch.randn(4000, DIM), torch.arange(4000) % 400
    judged = partial(retrieval, points, labels, progress=False)
    whole = interleaved({"all": judged}, rounds=3)["all"]
    pair = whole / 4000**2
    print(f"  retrieval                {1e9 * pair:10.2f} ns a query and gallery item", flush=True)
    failed = 0
    for size in (2, 4):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", str(size), __file__]
        failed |= subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}).returncode
    extended()
    sys.exit(bool(failed))


def among_ranks(ranks: Ranks) -> int:
    """What `size` ranks cost, and whether they are exact; rank 0 speaks."""
    lines = [
        f"{ranks.size} ranks over gloo on the loopback, CPU time of a rank and least wall time"
    ]
    for numbers in (1, 1 << 14, 1 << 20):
        rows = torch.randn(numbers)
        bytes_in = 4 * numbers * (ranks.size - 1)
        spent = least(lambda rows=rows: gather(rows, ranks, counts=[len(rows)] * ranks.size))
        lines.append(_line(f"gather {4 * numbers:,} B a rank", spent, bytes_in))
    for numbers in (1 << 14, 1 << 20):
        weight = torch.nn.Parameter(torch.zeros(numbers))
        weight.grad = torch.randn(numbers)
        spent = least(lambda weight=weight: sum_gradients([weight], ranks))
        moved = 4 * numbers * 2 * (ranks.size - 1) / ranks.size
        lines.append(_line(f"sum gradients of {4 * numbers:,} B", spent, moved))
    flag = least(lambda: ranks.any(False))
    lines.append(_line("agree on a flag", flag, 0))
    data = images()
    session, alone = Session(STEP, data, ranks), Session(STEP, data)
    session.advance(), alone.advance()
    both = zip(session.model.parameters(), alone.model.parameters(), strict=True)
    pairs = [(a.grad, b.grad) for a, b in both if a.grad is not None and b.grad is not None]
    size = max(float(b.abs().max()) for _, b in pairs)
    error = max(float((a - b).abs().max()) for a, b in pairs) / size
    lines.append(f"  gradients beside one process's: {error:.1e} of the largest, bar {EXACT:g}")
    spent = step_seconds(session)
    lines.append(f"  CPU time of a rank a step, B = 128 in all: {1e3 * spent:.2f} ms")
    if ranks.first:
        print("\n".join(lines), flush=True)
    return int(error > EXACT)


def extended() -> None:
    """Paper arithmetic: one step and one evaluation, on accelerators that were not measured."""
    flops, link, forward = 2e14, 5e10, 3 * 8.2e9  # sustained flop/s, bytes/s, ResNet-50 at 224²
    weights = 25.6e6
    print(
        "\nArithmetic, not measurement: 2e14 flop/s and 50 GB/s an accelerator, ResNet-50, dim 128"
    )
    head = ("ranks", "batch", "net ms", "loss ms", "gather ms", "sum ms", "loss share", "B² MB")
    print(" ".join(f"{name:>10}" for name in head))
    for ranks in (1, 8, 64, 1000):
        for each in (32, 256):
            batch = ranks * each
            net = each * forward / flops
            loss = 1.5 * 2 * batch**2 * DIM / flops
            moved = 4 * DIM * each * (ranks - 1) / link
            summed = 2 * 4 * weights * (ranks - 1) / ranks / link
            times = [1e3 * value for value in (net, loss, moved, summed)]
            share = loss / (net + loss + moved + summed)
            cells = [f"{ranks:10}", f"{batch:10}", *(f"{value:10.3f}" for value in times)]
            print(" ".join([*cells, f"{share:10.1%}", f"{4e-6 * batch**2:10.0f}"]))
    items = 1e9
    print(f"embedding 1e9 images once:        {items * 8.2e9 / flops / 1000:10.0f} s on 1,000")
    print(f"gallery of 1e9 x 128 float32:     {4 * items * DIM / 1e9:10.0f} GB on every rank")
    print(f"1e9 queries x 1e9 items, exact:   {2 * items**2 * DIM / flops / 1000:10.0f} s on 1,000")


def images() -> LabelledImages:
    draw = torch.Generator().manual_seed(0)
    drawn = torch.randn(640, 1, 28, 28, generator=draw)
    return LabelledImages(TensorSource(drawn), torch.arange(640) % 32, name="drawn")


def per_sample(name: str) -> float:
    model = backbones.build(name, DIM, shape=(1, 28, 28)).train()
    batch = torch.randn(64, 1, 28, 28)
    return interleaved({name: lambda: model(batch).sum().backward()}, rounds=5)[name] / 64


def loss_seconds(size: int) -> float:
    loss = TripletLoss(margin=0.2, miner=Miner("hard", "hard"))
    z, labels = torch.randn(size, DIM, requires_grad=True), torch.arange(size) % (size // 4)
    return interleaved({"loss": lambda: loss(z, labels).backward()}, rounds=5)["loss"]


def step_seconds(session: Session) -> float:
    for _ in range(3):
        session.advance()
    begun = time.process_time()
    for _ in range(10):
        session.advance()
    return (time.process_time() - begun) / 10


def least(call: Callable[[], object]) -> tuple[float, float]:
    """CPU seconds of a call, the mean, and its wall seconds, the least."""
    times, begun = [], time.process_time()
    for _ in range(TRIES):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return (time.process_time() - begun) / TRIES, min(times)


def _line(name: str, seconds: tuple[float, float], moved: float) -> str:
    cpu, wall = seconds
    rate = f", {1e9 * cpu / moved:.2f} ns of CPU a byte received" if moved > 1e4 else ""
    return f"  {name:34} {1e6 * cpu:9.0f} µs CPU {1e6 * wall:9.0f} µs wall{rate}"


if __name__ == "__main__":
    main()
