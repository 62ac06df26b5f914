"""Does mode drift predict which strategies lose the finer classes? Forecast beside outcome.

python benchmarks/real_features.py          features for CLINC, CUB and Cars, once
python benchmarks/mode_study.py             all runs (UNCOLLAPSE_DATA), then the tables
python benchmarks/mode_study.py --finished  tables of the runs made so far
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from _mode_sets import NAMES, CoarseSet, Rows, coarse_set
from _mode_table import auc_table, correlation_table, outcomes, run_table
from _study import cached, quiet
from uncollapse.data import DataError
from uncollapse.health import drift, mode_drift
from uncollapse.health.forecasts import embedded_batches
from uncollapse.losses import (
    ContrastiveLoss,
    Loss,
    MarginLoss,
    MultiSimilarityLoss,
    ProxyNCALoss,
    SupConLoss,
    TripletLoss,
)
from uncollapse.metrics import cdnv, nc1, retrieval
from uncollapse.mining import Miner
from uncollapse.samplers import PKSampler

PROBE, BATCHES, NEIGHBOURS = 30, 4, 3
STEPS = {"omniglot": 150, "mnist": 200, "clinc": 200, "cub": 200, "cars": 200}
OTHER_BATCHES = 1000  # drifts are measured on other batches than those trained on
RATE, PARAMETER_RATE = 1e-3, 1e-2  # of the network; of a loss's own parameters
POSITIVES = ("easy", "inside", "random", "hard", "all", "semihard")
NEGATIVES = ("semihard", "hard", "random")
# loss, positives, negatives, and a setting of its own: temperature, or proxies per class
OTHERS: tuple[tuple[str, str | None, str | None, float | None], ...] = (
    ("margin", None, None, None),
    ("margin", "easy", "distance", None),
    ("margin", "random", "distance", None),
    ("margin", "semihard", "distance", None),
    ("contrastive", None, None, None),
    ("contrastive", "easy", "hard", None),
    ("contrastive", "random", "hard", None),
    ("multi-similarity", None, None, None),
    ("multi-similarity", "easy", "all", None),
    ("multi-similarity", "multi_similarity", "multi_similarity", None),
    ("SupCon", None, None, 0.05),
    ("SupCon", None, None, 0.1),
    ("SupCon", None, None, 0.5),
    ("SupCon", "easy", "all", 0.1),
    ("ProxyNCA", None, None, 1),
    ("ProxyNCA", None, None, 10),
)
CORRELATED = ("mode drift, probe", "mode drift / inside, probe", "CDNV, probe (small)")
SEEDS = {"omniglot": 1, "mnist": 1, "clinc": 1, "cub": 2, "cars": 2}


@dataclass(frozen=True)
class ModeRun:
    """One run: data, loss, mining, the loss's own setting, seed."""

    data: str
    loss: str
    positives: str | None
    negatives: str | None
    own: float | None
    seed: int = 0

    @property
    def name(self) -> str:
        """In words."""
        words = f"{self.positives} x {self.negatives}" if self.positives else "no miner"
        words += f", τ = {self.own or 0:g}" * (self.loss == "SupCon")
        return words + f", {self.own or 1:g} per class" * (self.loss == "ProxyNCA")


def grid(names: list[str]) -> list[ModeRun]:
    found = []
    for name in names:
        for seed in range(SEEDS[name]):
            pairs = [(p, n) for p in POSITIVES for n in NEGATIVES]
            found += [ModeRun(name, "triplet", p, n, None, seed) for p, n in pairs]
            found += [ModeRun(name, *other, seed) for other in OTHERS]
    return found


def make_loss(run: ModeRun, classes: int, dim: int) -> Loss:
    generator = torch.Generator().manual_seed(run.seed)
    miner = None
    if run.positives and run.negatives:
        miner = Miner(run.positives, run.negatives, generator=generator)
    if run.loss == "triplet":
        return TripletLoss(margin=0.2, miner=miner)
    if run.loss == "margin":
        return MarginLoss(miner=miner)
    if run.loss == "contrastive":
        return ContrastiveLoss(margin=1.0, miner=miner)
    if run.loss == "multi-similarity":
        return MultiSimilarityLoss(miner=miner)
    if run.loss == "SupCon":
        return SupConLoss(temperature=run.own or 0.1, miner=miner)
    per_class = int(run.own or 1)
    return ProxyNCALoss(num_classes=classes, dim=dim, per_class=per_class, generator=generator)


class Sphere(nn.Module):
    """Rows of length 1."""

    def forward(self, z: Tensor) -> Tensor:
        """Divided by their norms."""
        return nn.functional.normalize(z, dim=1)


def one_run(run: ModeRun) -> dict[str, Any]:
    """Look, train for the probe, look, train on, and score what is held out."""
    data = coarse_set(run.data)
    torch.manual_seed(run.seed)
    model = data.network()
    sphere = data.sphere or run.loss not in ("triplet", "contrastive")
    if sphere:
        model = nn.Sequential(model, Sphere())
    classes = len(data.train.labels.unique())
    loss_fn = make_loss(run, classes, data.dim)
    optimiser = adam(model, loss_fn)
    stream = batches(data, run.seed)
    found: dict[str, Any] = {"start": _looked_at(model, loss_fn, data, sphere, run.seed)}
    found["recall_start"] = recalls(settled(model, data, run.seed), data.test)
    for step in range(STEPS[run.data]):
        if step == PROBE:
            found["probe"] = _looked_at(model, loss_fn, data, sphere, run.seed)
        step_on(model, loss_fn, optimiser, *next(stream))
    found["end"] = _looked_at(model, loss_fn, data, sphere, run.seed)
    found["recall"] = recalls(model, data.test)
    return found


def adam(model: nn.Module, loss_fn: nn.Module) -> torch.optim.Adam:
    """For the network, and at a higher rate for what the loss itself learns."""
    groups = [{"params": list(model.parameters()), "lr": RATE}]
    groups += [{"params": list(loss_fn.parameters()), "lr": PARAMETER_RATE}]
    return torch.optim.Adam([group for group in groups if group["params"]])


def step_on(
    model: nn.Module,
    loss_fn: nn.Module,
    optimiser: torch.optim.Optimizer,
    samples: Tensor,
    labels: Tensor,
) -> None:
    """One step of training; a batch that costs nothing changes nothing."""
    model.train()
    loss = loss_fn(model(samples), labels)
    optimiser.zero_grad()
    if loss.requires_grad:
        loss.backward()
    optimiser.step()


def batches(data: CoarseSet, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Samples and labels, without an end."""
    sampler = PKSampler(data.train.labels, data.p, data.k, seed)
    while True:
        for rows in sampler:
            yield data.train[rows]


def _looked_at(
    model: nn.Module, loss_fn: Loss, data: CoarseSet, sphere: bool, seed: int
) -> dict[str, float]:
    other = seed + OTHER_BATCHES
    seen = list(embedded_batches(model, data.train, data.p, data.k, BATCHES, other))
    modes = mode_drift(loss_fn, seen, k=NEIGHBOURS, normalize=sphere)
    figures = {f"modes_{key}": value for key, value in vars(modes).items()}
    figures["radial"] = drift(loss_fn, seen, normalize=sphere).value
    figures["nc1"] = float(np.mean([nc1(z, y) for z, y in seen]))
    figures["cdnv"] = float(np.mean([cdnv(z, y) for z, y in seen]))
    return {key: float(f"{value:.6g}") for key, value in figures.items()}


@torch.no_grad()
def settled(model: nn.Module, data: CoarseSet, seed: int) -> nn.Module:
    """The untrained network with statistics of batch norm that are those of its data."""
    copied = copy.deepcopy(model).train()
    for samples, _ in islice(batches(data, seed), 20):
        copied(samples)
    return copied


@torch.no_grad()
def embedded(model: nn.Module, rows: Rows) -> Tensor:
    """All rows through the network."""
    model.eval()
    return torch.cat([model(part) for part in rows.samples.split(500)])


def recalls(model: nn.Module, test: Rows) -> dict[str, float]:
    """R@1 by finer classes and by classes."""
    z = embedded(model, test)
    return {
        name: float(retrieval(z, labels, ks=(1,), progress=False).recall[1])
        for name, labels in (("fine", test.fine), ("coarse", test.labels))
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", nargs="*", default=list(NAMES), choices=list(NAMES))
    parser.add_argument("--cache", type=Path, default=Path("out/mode_study/runs.jsonl"))
    parser.add_argument("--finished", action="store_true", help="make no new run")
    parser.add_argument("--runs", action="store_true", help="every run of them, too")
    chosen = parser.parse_args()
    quiet()
    names = []
    for name in chosen.data:
        try:
            _ = chosen.finished or coarse_set(name)
        except (DataError, OSError) as error:
            print(f"left out {name}: {error}")
        else:
            names.append(name)
    found = cached(grid(names), one_run, chosen.cache, 0 if chosen.finished else 1)
    judged = outcomes(found)
    print(f"{len(judged)} runs\n\n{auc_table(judged)}\n")
    print(correlation_table(judged, CORRELATED) + "\n")
    for name in names if chosen.runs else ():
        print(run_table(judged, name) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
