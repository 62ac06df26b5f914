"""Retrieval and k-means beside PML's AccuracyCalculator and faiss, in one run.

One thread and CPU time; at 20,000 points two threads and wall time, which needs two idle cores.

python benchmarks/metrics.py            about eight minutes
python benchmarks/metrics.py --quick    10,000 points only
python benchmarks/metrics.py --threads  20,000 points on two threads only: half a minute
python benchmarks/metrics.py --full     also 300,000 points in bounded memory (ten minutes more)
"""

from __future__ import annotations

from _peer_blas import TWO  # first of all: it sets what BLAS reads when it loads

# isort: split
import argparse
import os
import statistics
import subprocess
import sys
import time
from functools import partial

import faiss
import numpy as np
import torch
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from torch import Tensor
from torch.nn.functional import normalize

from _timing import Row, interleaved, one_thread, peak_megabytes, report
from uncollapse.metrics import kmeans, normalized_mutual_information, retrieval

MEMORY_BAR = 150.0  # MB
NAMES = ("precision_at_1", "mean_average_precision_at_r", "r_precision", "mean_reciprocal_rank")


def embedding(n: int, classes: int, apart: float, dim: int = 128) -> tuple[Tensor, Tensor]:
    """Unit rows around random class directions; every class has at least two."""
    generator = torch.Generator().manual_seed(0)
    rest = torch.randint(0, classes, (n - 2 * classes,), generator=generator)
    labels = torch.cat([torch.arange(classes).repeat(2), rest])
    labels = labels[torch.randperm(n, generator=generator)]
    middles = torch.randn(classes, dim, generator=generator)
    x = torch.randn(n, dim, generator=generator) + apart * middles[labels]
    return normalize(x, dim=1), labels


def blocked_gemm(x: Tensor) -> object:
    """The whole N x N product in blocks that fit in memory."""
    buffer = torch.empty(512, len(x))
    for low in range(0, len(x), 512):
        part = x[low : low + 512]
        torch.mm(part, x.T, out=buffer[: len(part)])
    return buffer


def retrieval_rows(quick: bool) -> list[Row]:
    cases = [
        ("retrieval, R-precision 0.5", 10_000, 100, 0.55, 2.0, 9),
        ("retrieval, classes apart", 10_000, 100, 2.0, 2.0, 9),
        ("retrieval, 11,320 classes", 60_000, 11_320, 1.0, 4.0, 3),
    ]
    rows = []
    for name, n, classes, apart, bar, rounds in cases[: 2 if quick else 3]:
        x, labels = embedding(n, classes, apart)
        theirs = AccuracyCalculator(include=NAMES, k="max_bin_count", device=torch.device("cpu"))
        retrieval(x[:600], labels[:600])  # compile
        contenders = {
            "ours": lambda x=x, y=labels: retrieval(x, y),
            "PML": lambda x=x, y=labels, t=theirs: t.get_accuracy(x, y),
            "gemm": lambda x=x: blocked_gemm(x),
        }
        a, b = retrieval(x[:3000], labels[:3000]), theirs.get_accuracy(x[:3000], labels[:3000])
        # Not MRR: PML's ends with its list.
        pairs = zip((a.precision[1], a.map_at_r, a.r_precision), NAMES, strict=False)
        gap = max(abs(p - b[q]) for p, q in pairs)
        print(f"{name}: on 3,000 of the points the scores differ from PML's by {gap:.1e}")
        times = interleaved(contenders, rounds=rounds, warm=int(n < 20_000))
        setup = (
            "import torch; torch.set_num_threads(1)\n"
            "import metrics as bench\n"
            "from uncollapse.metrics import retrieval\n"
            "from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator\n"
            f"x, labels = bench.embedding({n}, {classes}, {apart})\n"
            "pml = AccuracyCalculator(include=bench.NAMES, k='max_bin_count',"
            " device=torch.device('cpu'))\n"
        )
        ours = peak_megabytes(setup, "retrieval(x, labels)", "retrieval(x[:600], labels[:600])")
        peer = peak_megabytes(
            setup, "pml.get_accuracy(x, labels)", "pml.get_accuracy(x[:600], labels[:600])"
        )
        rows.append(
            Row(name, f"{n:,}", times["ours"], times["PML"], bar, times["gemm"], ours, peer)
        )
    return rows


def two_threads(rounds: int = 7) -> bool:
    """20,000 points in 1,600 classes: wall time of all retrieval metrics, two threads each."""
    torch.set_num_threads(2)
    faiss.omp_set_num_threads(2)
    theirs = AccuracyCalculator(include=NAMES, k="max_bin_count", device=torch.device("cpu"))
    rows = []
    for name, apart in (("R-precision 0.5", 0.68), ("classes apart", 1.0)):
        x, labels = embedding(20_000, 1600, apart)
        contenders = {
            "ours": lambda x=x, y=labels: retrieval(x, y),
            "PML": lambda x=x, y=labels: theirs.get_accuracy(x, y),
            "gemm": lambda x=x: blocked_gemm(x),
        }
        times: dict[str, list[float]] = {contender: [] for contender in contenders}
        for _ in range(rounds + 1):  # the first compiles and warms up
            for contender, call in contenders.items():
                begun = time.perf_counter()
                call()
                times[contender].append(time.perf_counter() - begun)
        ours, peer, gemm = (statistics.median(spent[1:]) for spent in times.values())
        rows.append(Row(f"1,600 classes, {name}", "20,000", ours, peer, 4.0, gemm))
    return report("All retrieval metrics, two threads, wall time", rows)


def two_threads_apart() -> bool:
    """The same in a process of its own, in which the libraries start with two threads."""
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    done = subprocess.run([sys.executable, __file__, TWO], env=environment, check=False)
    return done.returncode == 0


def kmeans_rows(quick: bool) -> tuple[list[Row], list[str]]:
    """faiss makes 20 steps. Ours: to convergence, and as few as reach no worse an inertia."""
    cases = [("k-means, 1,000 clusters", 10_000, 100, 0.55, 1000, 100, 1.0, 5)]
    if not quick:
        cases.append(("k-means, 11,320 clusters", 60_000, 11_320, 1.0, 11_320, 4, 8.0, 1))
    rows, lines = [], []
    for name, n, classes, apart, clusters, few, bar, rounds in cases:
        x, labels = embedding(n, classes, apart)
        found: dict[str, tuple[float, float]] = {}

        def ours(key: str, steps: int, x=x, labels=labels, clusters=clusters, found=found) -> None:
            run = kmeans(x, clusters, max_iter=steps)
            found[key] = run.inertia, normalized_mutual_information(labels, run.labels)

        def theirs(x=x, labels=labels, clusters=clusters, found=found) -> None:
            run = faiss.Kmeans(x.shape[1], clusters, niter=20, min_points_per_centroid=1)
            run.train(x.numpy())
            square, place = run.index.search(x.numpy(), 1)
            nmi = normalized_mutual_information(labels, place[:, 0])
            found["faiss"] = float(square.sum(dtype=np.float64)), nmi

        kinds = {f"{few} steps": few, "to convergence": 100} if few < 100 else {"": 100}
        contenders = {kind: partial(ours, kind, steps) for kind, steps in kinds.items()}
        times = interleaved({**contenders, "faiss": theirs}, rounds=rounds, warm=int(rounds > 1))
        for place, kind in enumerate(kinds):
            title = f"{name}, {kind}" if kind else name
            asked = bar if place == 0 else None
            rows.append(Row(title, f"{n:,}", times[kind], times["faiss"], asked))
            (a, nmi_a), (b, nmi_b) = found[kind], found["faiss"]
            verdict = "pass" if a <= b * 1.001 else "MISS"
            lines.append(
                f"{title}: inertia {a:.1f} against {b:.1f} ({a / b:.4f}; bar 1.001) {verdict}; "
                f"NMI {nmi_a:.4f} against {nmi_b:.4f}"
            )
    return rows, lines


def large(n: int = 300_000, dim: int = 128) -> bool:
    """The size at which others run out of memory."""
    print(f"\n{n:,} x {dim}, {n // 5:,} classes, max_memory='150MB'", flush=True)
    call = "begun = time.process_time(); r = retrieval(x, labels, max_memory='150MB')\n"
    call += "print('CPU', time.process_time() - begun, r.recall[1], file=sys.stderr, flush=True)\n"
    call += "open('/dev/fd/2', 'w')"
    setup = (
        "import sys, time, torch; torch.set_num_threads(1)\n"
        "import metrics as bench\n"
        "from uncollapse.metrics import retrieval\n"
        f"x, labels = bench.embedding({n}, {n // 5}, 1.0, {dim})\n"
    )
    begun = time.perf_counter()
    peak = peak_megabytes(setup, call, "retrieval(x[:600], labels[:600])")
    good = peak <= MEMORY_BAR
    spent = time.perf_counter() - begun
    print(f"completed in {spent:.0f} s (wall); peak extra memory {peak:.0f} MB", end=" ")
    print(f"(bar {MEMORY_BAR:g}) {'pass' if good else 'MISS'}")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="10,000 points only")
    parser.add_argument("--full", action="store_true", help="also 300,000 points")
    parser.add_argument("--threads", action="store_true", help="two threads only")
    parser.add_argument(TWO, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if TWO in sys.argv:
        return 0 if two_threads() else 1
    if options.threads:
        return 0 if two_threads_apart() else 1
    one_thread()
    faiss.omp_set_num_threads(1)
    rows = retrieval_rows(options.quick)
    good = report("All retrieval metrics, exact (GEMMs: one whole N x N x 128 product)", rows)
    for row in rows:
        fits = row.ours_mb <= MEMORY_BAR
        good &= fits
        print(f"{row.name}: {row.ours_mb:.0f} MB (bar {MEMORY_BAR:g}) {'pass' if fits else 'MISS'}")
    if not options.quick:
        good &= two_threads_apart()
    rows, lines = kmeans_rows(options.quick)
    good &= report("k-means, one start (faiss: 20 steps)", rows, peer="faiss")
    print("\n".join(lines))
    good &= not any("MISS" in line for line in lines)
    if options.full:
        good &= large()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
