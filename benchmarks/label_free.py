"""Does direction drift predict which runs without labels lose their spread, or what they know?

python benchmarks/label_free.py                       all runs (UNCOLLAPSE_DATA), then the tables
python benchmarks/label_free.py --data mnist          the set that the rule was chosen on
python benchmarks/label_free.py --finished --out docs/results/label-free    tables, picture, runs

SimCLR, SimSiam, BYOL, VICReg and Barlow Twins as they should be, broken in the usual ways, and at
a learning rate far too high, with and without batch norm. Ten seconds for a run, on one core.
"""

from __future__ import annotations

import argparse
import copy
import math
import os
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy, normalize

from _label_free_table import picture, summary, write_csv
from _study import cached, quiet
from uncollapse.data import DataError, LabelledImages, load
from uncollapse.data.augment import horizontal_flip, random_crop
from uncollapse.health.drifts import direction_rate
from uncollapse.metrics import effective_rank, rankme, retrieval

SETS, SEEDS = ("mnist", "omniglot", "cifar100"), 2
STEPS, BATCH, DIM = 250, 128, 64
SLOW, LONG = "omniglot", 1000  # a set on which spread is lost slowly, and steps for that
LOOKS = (0, 30, 60)
LOOK_BATCHES = 4  # other batches than those trained on
IMAGES, HELD_OUT = 5000, 2000
HIGH = 20.0  # times the usual rate: far too high
SGD_RATE, ADAM_RATE = 0.05, 1e-3
# Direction drift r(U), its cosine <U_c, g> / |U_c| |g|, then what others look at.
FIGURES = ("drift", "pull", "spread", "rankme", "rank", "cosine")


@dataclass(frozen=True)
class Method:
    """How a loss is made; `adam` for the two whose papers use layer-wise rates."""

    loss: str
    temperature: float = 0.2
    predictor: bool = True
    stop_gradient: bool = True
    momentum: float | None = None  # of a target network
    variance: float = 25.0
    others: float = 1.0  # weight of the terms that tell dimensions apart
    adam: bool = False


METHODS = {
    "SimCLR": Method("contrast"),
    "SimCLR, temperature 5": Method("contrast", temperature=5.0),
    "SimSiam": Method("predict"),
    "SimSiam without stop-gradient": Method("predict", stop_gradient=False),
    "SimSiam without predictor": Method("predict", predictor=False),
    "alignment alone": Method("predict", predictor=False, stop_gradient=False),
    "BYOL": Method("predict", momentum=0.99),
    "BYOL without EMA": Method("predict", momentum=0.0),
    "BYOL without predictor": Method("predict", predictor=False, momentum=0.99),
    "VICReg": Method("vicreg", adam=True),
    "VICReg, variance term / 25": Method("vicreg", variance=1.0, adam=True),
    "VICReg without variance term": Method("vicreg", variance=0.0, adam=True),
    "VICReg without covariance term": Method("vicreg", others=0.0, adam=True),
    "Barlow Twins": Method("barlow", adam=True),
    "Barlow Twins without redundancy term": Method("barlow", others=0.0, adam=True),
}
WHOLE = ("SimCLR", "SimSiam", "BYOL", "VICReg", "Barlow Twins")


@dataclass(frozen=True)
class Run:
    """One run; `rate` is a factor on the usual learning rate."""

    data: str
    method: str
    batch_norm: bool
    rate: float = 1.0
    seed: int = 0
    steps: int = STEPS

    @property
    def name(self) -> str:
        """In words."""
        return self.method + f", rate x {self.rate:g}" * (self.rate != 1.0)


def grid(names: list[str]) -> list[Run]:
    """Seed by seed, so that a study cut short has every setting; then what may fall slowly."""
    rated = [(name, 1.0) for name in METHODS] + [(name, HIGH) for name in WHOLE]
    slow = [name for name, method in METHODS.items() if method.loss == "predict"]
    return [
        Run(data, method, batch_norm, rate, seed)
        for seed in range(SEEDS)
        for data in names
        for method, rate in rated
        for batch_norm in (True, False)
    ] + [Run(SLOW, method, False, steps=LONG) for method in slow if SLOW in names]


class Learner(nn.Module):
    """A small convnet with a projector, a predictor, and a slow copy of the first as target."""

    def __init__(self, method: Method, channels: int, batch_norm: bool) -> None:
        super().__init__()
        self.method = method
        layers: list[nn.Module] = []
        for before, after in ((channels, 16), (16, 32), (32, 64)):
            layers += [nn.Conv2d(before, after, 3, stride=2, padding=1)]
            layers += [nn.BatchNorm2d(after)] * batch_norm + [nn.ReLU()]
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        self.encoder = nn.Sequential(*layers, *_mlp(64, 128, DIM, batch_norm))
        self.predictor = nn.Sequential(*_mlp(DIM, 32, DIM, batch_norm))
        self.target = copy.deepcopy(self.encoder)

    def loss_fn(self, first: Tensor, second: Tensor) -> Any:
        """The loss as a function of both views' embeddings, for these images."""
        method = self.method
        if method.momentum is not None:
            with torch.no_grad():
                targets = self.target(first), self.target(second)
            return lambda a, b: self._prediction(a, targets[1]) + self._prediction(b, targets[0])
        if method.loss == "predict":
            stop = Tensor.detach if method.stop_gradient else lambda z: z
            return lambda a, b: self._prediction(a, stop(b)) + self._prediction(b, stop(a))
        losses = {"contrast": _contrast, "vicreg": _vicreg, "barlow": _barlow}
        return lambda a, b: losses[method.loss](a, b, method)

    def _prediction(self, z: Tensor, target: Tensor) -> Tensor:
        """Half of -cos for SimSiam; for BYOL the squared distance of directions, as its paper."""
        predicted = self.predictor(z) if self.method.predictor else z
        similarity = cosine_similarity(predicted, target).mean()
        return -similarity / 2 if self.method.momentum is None else 2.0 - 2.0 * similarity

    @torch.no_grad()
    def follow(self) -> None:
        """Move the target towards the network."""
        if self.method.momentum is not None:
            for slow, fast in zip(self.target.parameters(), self.encoder.parameters(), strict=True):
                slow.lerp_(fast, 1.0 - self.method.momentum)


def _mlp(before: int, between: int, after: int, batch_norm: bool) -> list[nn.Module]:
    norm: list[nn.Module] = [nn.BatchNorm1d(between)] * batch_norm
    return [nn.Linear(before, between), *norm, nn.ReLU(), nn.Linear(between, after)]


def _contrast(a: Tensor, b: Tensor, method: Method) -> Tensor:
    """NT-Xent (SimCLR): each row's other view among all rows of both views."""
    unit = normalize(torch.cat([a, b]), dim=1)
    logits = (unit @ unit.T / method.temperature).fill_diagonal_(-math.inf)
    return cross_entropy(logits, torch.arange(len(unit)).roll(len(a)))


def _vicreg(a: Tensor, b: Tensor, method: Method) -> Tensor:
    """Invariance, variance and covariance terms of VICReg, as in its paper."""
    loss = 25.0 * (a - b).square().mean()
    for z in (a, b):
        about = z - z.mean(0)
        deviations = (about.var(0) + 1e-4).sqrt()
        covariance = about.T @ about / (len(z) - 1)
        loss = loss + method.variance * (1.0 - deviations).relu().mean() / 2
        loss = loss + method.others * _off_diagonal(covariance).square().sum() / z.shape[1]
    return loss


def _barlow(a: Tensor, b: Tensor, method: Method) -> Tensor:
    """Cross-correlation of the dimensions of both views: 1 on the diagonal, 0 beside it."""
    a, b = ((z - z.mean(0)) / (z.std(0) + 1e-5) for z in (a, b))
    correlation = a.T @ b / len(a)
    invariance = (1.0 - correlation.diagonal()).square().sum()
    return invariance + 0.005 * method.others * _off_diagonal(correlation).square().sum()


def _off_diagonal(x: Tensor) -> Tensor:
    return x - torch.diag(x.diagonal())


@dataclass(frozen=True)
class Images:
    """What a run trains on, and the labelled rows that it is judged by."""

    train: Tensor
    test: Tensor
    labels: Tensor


@cache
def images(name: str) -> Images:
    """At most so many, evenly from all. Letters are judged on unseen alphabets."""
    if name == "cifar100":
        root = Path(os.environ.get("UNCOLLAPSE_DATA", ".")) / name
        options: dict[str, Any] = {"size": 32, "channels": 3, "cache": False, "fit": "stretch"}
        train, test = (load("folder", root, split, **options) for split in ("train", "test"))
    else:
        options = {"size": 28} if name == "omniglot" else {}
        train, test = (load(name, split=split, **options) for split in ("train", "test"))
        if name == "omniglot":
            test = test.by_fine_labels()
    classes = {"mnist": 10, "omniglot": 100, "cifar100": 20}[name]
    held_out = test.subset(test.label_index < classes)
    return Images(_evenly(train, IMAGES)[0], *_evenly(held_out, HELD_OUT))


def _evenly(data: LabelledImages, most: int) -> tuple[Tensor, Tensor]:
    rows = torch.linspace(0, len(data) - 1, min(most, len(data))).long()
    samples, labels = data[rows]
    return samples.float(), labels


def two_views(run: Run, train: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Crops of a batch's images, brighter or darker, with noise; photographs also mirrored."""
    batch = train[torch.randint(len(train), (BATCH,), generator=generator)]
    views = []
    for _ in range(2):
        view = random_crop(batch, generator, scale=(0.5, 1.0))
        if run.data == "cifar100":
            view = horizontal_flip(view, generator)
        light = 0.6 + 0.8 * torch.rand(BATCH, 1, 1, 1, generator=generator)
        views.append(view * light + 0.1 * torch.randn(view.shape, generator=generator))
    return views[0], views[1]


def one_run(run: Run) -> dict[str, Any]:
    """Look at the start, after 30 and 60 steps and at the end; score what is held out."""
    data, method = images(run.data), METHODS[run.method]
    torch.manual_seed(run.seed)
    learner = Learner(method, data.train.shape[1], run.batch_norm)
    optimizer = _optimizer(learner, method, run.rate)
    generator = torch.Generator().manual_seed(run.seed)
    begun = time.process_time()
    result: dict[str, Any] = {"before": held_out(learner, data)}
    for step in range(run.steps):
        if step in LOOKS:
            result[str(step)] = looked_at(learner, run, data)
        first, second = two_views(run, data.train, generator)
        loss = learner.loss_fn(first, second)(learner.encoder(first), learner.encoder(second))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        learner.follow()
    result["end"] = looked_at(learner, run, data)
    result["after"] = held_out(learner, data)
    result["seconds"] = round(time.process_time() - begun, 2)
    return result


def _optimizer(learner: Learner, method: Method, rate: float) -> torch.optim.Optimizer:
    learned = [*learner.encoder.parameters(), *learner.predictor.parameters()]
    if method.adam:
        return torch.optim.Adam(learned, lr=rate * ADAM_RATE)
    return torch.optim.SGD(learned, lr=rate * SGD_RATE, momentum=0.9)


def looked_at(learner: Learner, run: Run, data: Images) -> dict[str, float | None]:
    """Figures of a copy on other batches, in training mode: their means; None if not finite."""
    trial = copy.deepcopy(learner)
    generator = torch.Generator().manual_seed(run.seed + 1000)
    rows = []
    for _ in range(LOOK_BATCHES):
        views = two_views(run, data.train, generator)
        leaves = [trial.encoder(view).detach().requires_grad_(True) for view in views]
        if not all(bool(z.isfinite().all()) for z in leaves):
            return dict.fromkeys(FIGURES)
        slopes = torch.autograd.grad(trial.loss_fn(*views)(*leaves), leaves)
        rows.append(figures(torch.cat(leaves).detach(), torch.cat(slopes)))
    means = torch.tensor(rows, dtype=torch.float64).mean(0).tolist()
    pairs = zip(FIGURES, means, strict=True)
    return {name: float(f"{x:.6g}") if math.isfinite(x) else None for name, x in pairs}


def figures(z: Tensor, slope: Tensor) -> tuple[float, ...]:
    """`FIGURES` of rows and the gradient at them."""
    z, slope = z.double(), slope.double()
    norms = z.norm(dim=1, keepdim=True)
    unit = z / norms
    tangent = norms * (slope - (slope * unit).sum(1, keepdim=True) * unit)
    n, centre = len(unit), unit.mean(0)
    about = unit - centre
    pull = (about * tangent).sum() / (about.norm() * tangent.norm())
    cosine = (n * n * centre.square().sum() - n) / (n * (n - 1))
    spread = about.square().sum(1).mean().sqrt()
    ranks = rankme(unit), effective_rank(unit)
    return direction_rate(z, slope), float(pull), float(spread), *ranks, float(cosine)


@torch.no_grad()
def held_out(learner: Learner, data: Images) -> dict[str, float]:
    """R@1 and rank of the directions of held-out rows; batch norm by these rows' statistics."""
    unit = normalize(copy.deepcopy(learner.encoder)(data.test), dim=1)
    if not bool(unit.isfinite().all()):
        return {"recall": 0.0, "rank": 0.0}
    recall = retrieval(unit, data.labels, ks=(1,), progress=False).recall[1]
    return {"recall": round(float(recall), 5), "rank": round(effective_rank(unit), 4)}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", nargs="*", default=list(SETS), choices=SETS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cache", type=Path, default=Path("out/label_free/runs.jsonl"))
    parser.add_argument("--finished", action="store_true", help="make no new run")
    parser.add_argument("--out", type=Path, help="folder for the tables, the picture and all runs")
    chosen = parser.parse_args()
    quiet()
    names = []
    for name in chosen.data:
        try:
            _ = chosen.finished or images(name)
        except (DataError, OSError) as error:
            print(f"left out {name}: {error}")
        else:
            names.append(name)
    jobs = 0 if chosen.finished else chosen.jobs
    found = cached(grid(names), one_run, chosen.cache, jobs)
    print(text := summary(found))
    if chosen.out is not None:
        chosen.out.mkdir(parents=True, exist_ok=True)
        write_csv(found, chosen.out / "runs.csv")
        picture(found, chosen.out / "drift.svg")
        (chosen.out / "summary.md").write_text(f"# Without labels\n\n{text}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
