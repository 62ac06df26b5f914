"""Losses beside pytorch-metric-learning: speed, memory, and the gradient near collapse.

Forward and backward, one thread, CPU time, interleaved medians of one run. `--full` adds the cases
that take PML minutes; `--threads` compares two threads with one by wall time (on a free machine);
`--losses` takes one line per loss of PML's name alone.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from pytorch_metric_learning import losses, miners
from torch import Tensor, nn
from torch.nn import functional

from _timing import Row, gemm, interleaved, one_thread, peak_megabytes, report
from uncollapse.losses import (
    ArcFaceLoss,
    CircleLoss,
    CosFaceLoss,
    Loss,
    MultiSimilarityLoss,
    NTXentLoss,
    ProxyAnchorLoss,
    ProxyNCALoss,
    SmoothAPLoss,
    SoftTripleLoss,
    SupConLoss,
    TripletLoss,
)
from uncollapse.mining import Miner

DIM, MARGIN = 128, 0.2
PAIRWISE: dict[str, tuple[Callable[..., Any], Callable[..., nn.Module]]] = {
    "circle": (lambda: CircleLoss(reduction="nonzero"), losses.CircleLoss),
    "NT-Xent": (NTXentLoss, losses.NTXentLoss),
    "SupCon": (SupConLoss, losses.SupConLoss),
    "smooth AP": (SmoothAPLoss, losses.SmoothAPLoss),
}
# PML compares all positive with all negative pairs, or all with all for each row: at 1024 that is
# 12 GB and more. Its Smooth-AP is right for as many classes as a class has rows, in order.
CUBIC = {"NT-Xent": 4, "smooth AP": 16}  # samples per class at 256
CLASSWISE: dict[str, tuple[Callable[..., Any], Callable[..., nn.Module]]] = {
    "ArcFace": (
        lambda **k: ArcFaceLoss(margin=math.radians(28.6), **k),
        losses.ArcFaceLoss,
    ),
    "ArcFace, 3 sub-centres": (
        lambda **k: ArcFaceLoss(margin=math.radians(28.6), sub_centers=3, **k),
        lambda c, d: losses.SubCenterArcFaceLoss(num_classes=c, embedding_size=d, sub_centers=3),
    ),
    "CosFace": (CosFaceLoss, losses.CosFaceLoss),
    "SoftTriple": (SoftTripleLoss, losses.SoftTripleLoss),
    "proxy-anchor": (ProxyAnchorLoss, losses.ProxyAnchorLoss),
    "ProxyNCA": (
        lambda **k: ProxyNCALoss(scale=1.0, exclude_positive=False, **k),
        losses.ProxyNCALoss,
    ),
}

# "None slower", and what each reached short of the tenth by which runs vary.
BARS = {
    "circle": 1.4,
    "NT-Xent": 200.0,
    "SupCon": 2.5,
    "smooth AP": 10.0,
    "ArcFace": 1.0,
    "ArcFace, 3 sub-centres": 1.0,
    "CosFace": 1.0,
    "SoftTriple": 1.6,
    "proxy-anchor": 1.6,
    "ProxyNCA": 1.1,
}

SETUP = """
import torch
from learning import batch, contenders
torch.set_num_threads(1)
x, labels = batch({n}, {k})
call = contenders({case!r}, x, labels)[{who}]
"""
WARM = "small = batch(256, {k}); contenders({case!r}, *small)[{who}]()"


def batch(n: int, k: int) -> tuple[Tensor, Tensor]:
    """`n` shuffled rows in classes of `k` that overlap."""
    generator = torch.Generator().manual_seed(0)
    labels = (torch.arange(n) // k)[torch.randperm(n, generator=generator)]
    centres = torch.randn((n + k - 1) // k, DIM, generator=generator)
    x = torch.randn(n, DIM, generator=generator) + 0.5 * centres[labels]
    return x.requires_grad_(), labels


def contenders(case: str, x: Tensor, labels: Tensor) -> list[Callable[[], float]]:
    """Ours and PML's, forward and backward, of one case; both normalise the embeddings."""
    if case == "batch-hard":
        ours = TripletLoss(
            margin=MARGIN, miner=Miner("hard", "hard"), normalize=True, reduction="nonzero"
        )
        pml, miner = losses.TripletMarginLoss(margin=MARGIN), miners.BatchHardMiner()
    elif case == "all triplets":
        ours = TripletLoss(margin=MARGIN, normalize=True, reduction="nonzero")
        pml, miner = losses.TripletMarginLoss(margin=MARGIN), None
    elif case == "semi-hard, fused":
        every = Miner("all", "all", margin=MARGIN, keep="semihard")
        ours = TripletLoss(margin=MARGIN, miner=every, normalize=True, reduction="nonzero")
        pml = losses.TripletMarginLoss(margin=MARGIN)
        miner = miners.TripletMarginMiner(MARGIN, "semihard")
    elif case in PAIRWISE:
        ours, pml, miner = *(make() for make in PAIRWISE[case]), None
        if case == "smooth AP":
            order = labels.argsort(stable=True)
            return [_step(x, lambda f=f: f(x[order], labels[order])) for f in (ours, pml)]
    elif case in CLASSWISE:
        ours, pml, miner = *with_proxies(case, labels), None
    else:
        ours = MultiSimilarityLoss(base=0.5, miner=Miner("multi_similarity", "multi_similarity"))
        pml, miner = losses.MultiSimilarityLoss(2, 50, 0.5), miners.MultiSimilarityMiner(0.1)
    return [
        _step(x, lambda: ours(x, labels)),
        _step(x, lambda: pml(x, labels, miner(x, labels) if miner else None)),
    ]


def with_proxies(case: str, labels: Tensor) -> tuple[Loss, nn.Module]:
    """Ours and PML's, with the same learned class vectors."""
    make, peer = CLASSWISE[case]
    classes = int(labels.max()) + 1
    ours, theirs = make(num_classes=classes, dim=DIM), peer(classes, DIM)
    flat = ours.proxies.detach().flatten(0, 1)
    (name,) = {"proxies", "W", "fc"} & dict(theirs.named_parameters()).keys()
    setattr(theirs, name, nn.Parameter(flat.clone() if name == "proxies" else flat.T.clone()))
    return ours, theirs


def _step(x: Tensor, forward: Callable[[], Tensor]) -> Callable[[], float]:
    def step() -> float:
        x.grad = None
        loss = forward()
        loss.backward()
        return loss.item()

    return step


def speed(
    case: str,
    n: int,
    k: int,
    bar: float | None,
    *,
    peer: bool,
    memory: bool,
    rounds: int | None = None,
    budget: float = 60.0,
) -> Row:
    x, labels = batch(n, k)
    ours, pml = contenders(case, x, labels)
    calls: dict[str, Callable[[], object]] = {"gemm": gemm(n, DIM), "ours": ours}
    if peer:
        calls["pml"] = pml
        ours_loss, grad = ours(), x.grad
        gap = abs(ours_loss - pml())
        apart = float((x.grad - grad).norm() / grad.norm())
        if gap > 1e-5 or apart > 1e-4:
            raise RuntimeError(f"{case} N={n}: values differ by {gap:.1e}, gradients {apart:.1e}")
    rounds = rounds or (9 if n <= 1024 else 3 if n * k > 20_000 else 5)
    times = interleaved(calls, rounds=rounds, budget=budget)
    row = Row(case, f"{n}, K={k}", times["ours"], bar=bar, gemm=times["gemm"])
    if peer:
        row.peer = times["pml"]
    if memory:
        row.ours_mb = _peak(case, n, k, 0)
        row.peer_mb = _peak(case, n, k, 1) if peer else float("nan")
    return row


def _peak(case: str, n: int, k: int, who: int) -> float:
    setup = SETUP.format(n=n, k=k, case=case, who=who)
    return peak_megabytes(setup, "call()", WARM.format(k=k, case=case, who=who))


def near_collapse() -> bool:
    """Gradient error of all triplets and of batch-hard, against float64, around one direction."""
    print("\nGradient near collapse: error relative to float64 (N=64, K=4, normalised)")
    print(f"{'noise':>8} {'all: ours':>10} {'PML':>10} {'hard: ours':>11} {'PML':>10} {'bar':>8}")
    labels = torch.arange(64) // 4
    good = True
    for noise in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7):
        base = 1.0 + noise * torch.randn(64, DIM, generator=torch.Generator().manual_seed(1))
        cells = []
        for hard in (False, True):
            truth = _oracle_gradient(base, labels, hard)
            miner = Miner("hard", "hard") if hard else None
            ours = TripletLoss(margin=MARGIN, miner=miner, normalize=True, reduction="nonzero")
            pml_miner, pml = miners.BatchHardMiner(), losses.TripletMarginLoss(margin=MARGIN)
            for forward in (
                lambda x, f=ours: f(x, labels),
                lambda x, f=pml, m=pml_miner, h=hard: f(x, labels, m(x, labels) if h else None),
            ):
                x = base.clone().requires_grad_()
                forward(x).backward()
                cells.append(float((x.grad - truth).norm() / truth.norm()))
        good &= max(cells[0], cells[2]) <= 1e-5
        outcome = "pass" if max(cells[0], cells[2]) <= 1e-5 else "MISS"
        print(
            f"{noise:8.0e} {cells[0]:10.1e} {cells[1]:10.1e} {cells[2]:11.1e} {cells[3]:10.1e} "
            f"{'1e-5':>8} {outcome}"
        )
    return good


def _oracle_gradient(base: Tensor, labels: Tensor, hard: bool) -> Tensor:
    x = base.double().requires_grad_()
    y = functional.normalize(x, dim=1)
    square = (y[:, None] - y[None]).square().sum(-1)
    distance = torch.where(square > 0, square, 1.0).sqrt() * (square > 0)
    same, self_ = labels[:, None] == labels, torch.eye(len(x), dtype=torch.bool)
    if hard:
        near = distance.masked_fill(~same | self_, -1.0).amax(1)
        far = distance.masked_fill(same, 9.0).amin(1)
        loss = (near - far + MARGIN).relu()
    else:
        kept = (same & ~self_)[:, :, None] & ~same[:, None, :]
        loss = (distance[:, :, None] - distance[:, None, :] + MARGIN)[kept].relu()
    (gradient,) = torch.autograd.grad(loss.sum() / (loss > 0).sum(), x)
    return gradient


def two_threads() -> bool:
    """Wall time of two threads beside one, in alternation; needs a machine with nothing else on."""
    print("\nWall time, two threads over one (bar: not slower, 1.05)")
    good = True
    for case, n in (("batch-hard", 1024), ("all triplets", 1024), ("multi-similarity", 1024)):
        ours = contenders(case, *batch(n, 4))[0]
        times: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(15):
            for threads in (1, 2):
                torch.set_num_threads(threads)
                ours()
                begun = time.perf_counter()
                ours()
                times[threads].append(time.perf_counter() - begun)
        ratio = statistics.median(times[2]) / statistics.median(times[1])
        good &= ratio <= 1.05
        print(f"{case:30} N={n:5} {ratio:6.2f} {'pass' if ratio <= 1.05 else 'MISS'}")
    one_thread()
    return good


def by_loss() -> Iterator[Row]:
    """One line per loss that PML has too; where PML cannot, ours alone at 1024."""
    for case in (*PAIRWISE, *CLASSWISE):
        size, k = (256, CUBIC[case]) if case in CUBIC else (1024, 4)
        # Calls of a few milliseconds: many rounds, for the median.
        yield speed(case, size, k, BARS[case], peer=True, memory=False, rounds=41, budget=10.0)
        if case in CUBIC:
            yield speed(case, 1024, k, None, peer=False, memory=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="also the cases slow in PML")
    parser.add_argument("--threads", action="store_true", help="also two threads beside one")
    parser.add_argument("--losses", action="store_true", help="only a line per loss")
    options = parser.parse_args()
    one_thread()
    fast = importlib.util.find_spec("numba") is not None
    print(f"torch {torch.__version__}; numba {'installed' if fast else 'not installed'}")
    title = "Forward + backward, one thread, CPU time; GEMMs: N x N x 128 products"
    if options.losses:
        return 0 if report(title, list(by_loss())) else 1
    rows = [
        speed("batch-hard", 256, 4, 3.5, peer=True, memory=False),
        speed("batch-hard", 1024, 4, 7.0, peer=True, memory=False),
        speed("batch-hard", 4096, 4, 15.0, peer=True, memory=True),
        speed("all triplets", 256, 4, 15.0, peer=True, memory=False),
        speed("all triplets", 512, 4, 50.0, peer=True, memory=True),
        speed("all triplets", 1024, 4, 100.0, peer=True, memory=True),
        speed("all triplets", 8192, 4, None, peer=False, memory=True),
        speed("semi-hard, fused", 256, 4, 15.0, peer=True, memory=False),
        speed("semi-hard, fused", 1024, 4, 100.0, peer=True, memory=False),
        speed("multi-similarity", 256, 4, 5.0, peer=True, memory=False),
        speed("multi-similarity", 1024, 4, 12.0, peer=True, memory=False),
        speed("multi-similarity", 4096, 4, 15.0, peer=True, memory=True),
    ]
    rows += by_loss()
    if options.full:
        rows.append(speed("all triplets", 2048, 32, 60.0, peer=True, memory=True))
        rows.append(speed("semi-hard, fused", 4096, 4, 15.0, peer=True, memory=False))
    good = report(title, rows)
    lean = [r for r in rows if r.name == "all triplets" and r.size.startswith("1024")]
    for row in lean:
        share = row.peer_mb / max(row.ours_mb, 1e-9)
        print(f"memory of all triplets at 1024: 1/{share:.0f} of PML (bar 1/50)")
        good &= share >= 50
    good &= near_collapse()
    if options.threads:
        good &= two_threads()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
