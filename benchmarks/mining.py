"""Mining beside pytorch-metric-learning: one thread, CPU time, interleaved medians, ratios, bars.

    python benchmarks/mining.py [--quick]

Embeddings are given unnormalised to both; ours are normalised inside the timed call, as PML does.
Exits with 1 when a bar is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from pytorch_metric_learning import miners
from torch import Tensor
from torch.nn.functional import normalize

from _timing import Row, gemm, interleaved, one_thread, peak_megabytes, report
from uncollapse._base.extras import compiled, without_kernels
from uncollapse.mining import Miner

DIM, K = 128, 4
BARS = {
    ("easy", "hard"): {256: 2.5, 1024: 4.5, 4096: 6.0},
    ("easy", "semihard"): {256: 2.5, 1024: 4.5, 4096: 6.0},
    ("all", "distance"): {256: 15.0, 1024: 50.0},
}


def batch(n: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = (torch.arange(n) // K)[torch.randperm(n, generator=generator)]
    centres = torch.randn(n // K, DIM, generator=generator)
    return torch.randn(n, DIM, generator=generator) + 0.5 * centres[labels], labels


def peer(positives: str, negatives: str) -> Callable[[Tensor, Tensor], object]:
    if negatives == "distance":
        return miners.DistanceWeightedMiner()
    if negatives == "multi_similarity":
        return miners.MultiSimilarityMiner(0.1)
    return miners.BatchEasyHardMiner(positives, negatives)


def ours(positives: str, negatives: str) -> Callable[[Tensor, Tensor], object]:
    miner = Miner(positives, negatives)
    return lambda x, labels: miner(normalize(x, dim=1), labels)


def compared(positives: str, negatives: str, n: int, rounds: int, memory: bool) -> Row:
    x, labels = batch(n)
    mine, theirs = ours(positives, negatives), peer(positives, negatives)
    times = interleaved(
        {"gemm": gemm(n, DIM), "pml": lambda: theirs(x, labels), "ours": lambda: mine(x, labels)},
        rounds,
        warm=2,
        budget=60.0,
    )
    name = f"{positives} x {negatives}"
    bar = BARS.get((positives, negatives), {}).get(n)
    row = Row(name, str(n), times["ours"], times["pml"], bar, times["gemm"])
    if memory:
        for kind in ("ours", "peer"):
            setup = f"from mining import batch, {kind}\nx, y = batch({n})\ns, t = batch(64)"
            setup += f"\nm = {kind}({positives!r}, {negatives!r})"
            setattr(row, f"{kind}_mb", peak_megabytes(setup, "m(x, y)", warm="m(s, t)"))
    return row


def alone(positives: str, negatives: str, n: int, **settings: object) -> Row:
    x, labels = batch(n)
    miner = Miner(positives, negatives, **settings)  # type: ignore[arg-type]
    times = interleaved({"gemm": gemm(n, DIM), "ours": lambda: miner(x, labels)}, 5)
    more = "".join(f" {key}={value}" for key, value in settings.items())
    return Row(f"{positives} x {negatives}{more}", str(n), times["ours"], gemm=times["gemm"])


def main() -> None:
    one_thread()
    quick = "--quick" in sys.argv
    rows = []
    for (positives, negatives), bars in BARS.items():
        for n in bars:
            rounds = 41 if n <= 256 else 15 if n <= 1024 else 7
            rows.append(compared(positives, negatives, n, rounds, memory=n >= 1024 and not quick))
    passed = report(f"Mining, dim {DIM}, {K} a class (numba: {compiled.kernels is not None})", rows)
    if not quick:
        with without_kernels():
            again = [compared("easy", negatives, n, 9, False)
                     for negatives in ("hard", "semihard") for n in (256, 1024, 4096)]  # fmt: skip
        report("The same without numba", again)
        others = [
            alone(positives, negatives, 1024)
            for positives, negatives in (
                ("easy", "random"),
                ("inside", "hard"),
                ("hard", "hard"),
                ("semihard", "semihard"),
                ("all", "semihard"),
                ("easy", "multi_similarity"),
            )
        ]
        report("Others, without a peer", [*others, alone("easy", "hard", 1024, pool=64)])
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
