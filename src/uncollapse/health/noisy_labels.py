"""The question of EPS §4 asked of a network: what do wrong labels do to its classes?"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from uncollapse._base.arrays import Array, ArrayLike, class_ids
from uncollapse._base.check import InputError, check_int, check_number
from uncollapse._base.extras import keep_memory
from uncollapse.geometry import class_diameters, diameter
from uncollapse.losses import TripletLoss
from uncollapse.metrics import modes_per_class, retrieval
from uncollapse.mining import Miner
from uncollapse.noise import NoiseModel
from uncollapse.samplers import PKSampler

__all__ = ["NoiseProbe", "noise_probe"]


@dataclass(frozen=True)
class ProbeRow:
    """One short training. Classes are those given, not the noisy ones that training saw.

    `class_diameter` is the mean diameter of a class over the diameter of the whole; `within` the
    same with mean distances to the mean, which no single outlier decides; `modes` the mean number
    of modes a class keeps (`metrics.modes_per_class`, by the fine labels if there are any);
    `recall` and `fine_recall` are recall@1 by labels and by fine labels.
    """

    p: float
    positives: str
    class_diameter: float
    within: float
    modes: float
    recall: float
    fine_recall: float | None
    loss: float


@dataclass(frozen=True)
class NoiseProbe:
    """The rows of a probe, p by p, regular positives first; prints as a table."""

    rows: tuple[ProbeRow, ...]

    def __str__(self) -> str:
        lines = ["    p positives class/whole within modes   R@1 fine R@1"]
        for row in self.rows:
            fine = "-" if row.fine_recall is None else f"{row.fine_recall:.3f}"
            lines.append(
                f"{row.p:5g}{row.positives:>10}{row.class_diameter:12.3f}{row.within:7.3f}"
                f"{row.modes:6.3f}{row.recall:6.3f}{fine:>9}"
            )
        return "\n".join(lines)


def noise_probe(
    model: Callable[[], nn.Module],
    x: ArrayLike,
    labels: ArrayLike,
    p: Sequence[float] = (1.0, 0.9, 0.8, 0.7),
    *,
    fine_labels: ArrayLike | None = None,
    steps: int = 200,
    k: int = 16,
    margin: float = 0.2,
    negatives: str = "semihard",
    lr: float = 1e-3,
    seed: int = 0,
) -> NoiseProbe:
    """Train briefly with regular and with easy positives at each noise level, and compare.

    Args:
        model: makes a new network; both trainings of every level start from the same weights.
        x: samples, `[N, ...]`, as the network takes them; arrays and lists become float32.
        labels: their classes.
        p: probabilities that a label is right (`uncollapse.noise.NoiseModel`); 1 is no noise.
        fine_labels: hidden finer classes, only to evaluate: the modes that collapse would merge.
        steps: optimiser steps (Adam) of each training.
        k: samples per class in a batch; all classes are in it, up to 16.
        margin: of the triplet loss.
        negatives: how `Miner` chooses negatives.
        lr: learning rate.
        seed: decides weights, noise, batches and mining; torch's global state is left as it was.

    >>> x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    >>> probe = noise_probe(lambda: nn.Linear(3, 2), x, [0, 1] * 20, [1.0, 0.8], steps=2, k=4)
    >>> [(row.p, row.positives) for row in probe.rows]
    [(1.0, 'random'), (1.0, 'easy'), (0.8, 'random'), (0.8, 'easy')]
    """
    check_int("steps", steps)
    check_number("lr", lr, low=0.0)
    samples = _samples(x)
    ids, classes = class_ids(labels, len(samples), min_classes=2)
    levels = [check_number("p", level, low=0.0, high=1.0) for level in p]
    if not levels:
        raise InputError("p", "no noise level", "at least one")
    keep_memory()
    rows = []
    for level in levels:
        generator = torch.Generator().manual_seed(seed)
        noisy = NoiseModel(len(classes), level).sample(torch.from_numpy(ids), generator)
        for positives in ("random", "easy"):
            drawn = torch.Generator().manual_seed(seed)
            miner = Miner(positives, negatives, margin=margin, generator=drawn)
            loss_fn = TripletLoss(margin=margin, miner=miner)
            sampler = PKSampler(noisy, p=min(len(classes), 16), k=k, seed=seed)
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                network = model()
                loss = _train(network, samples, noisy, loss_fn, sampler, steps, lr)
            rows.append(_row(_embed(network, samples), ids, fine_labels, level, positives, loss))
    return NoiseProbe(tuple(rows))


def _samples(x: ArrayLike) -> Tensor:
    if isinstance(x, Tensor):
        return x
    try:
        return torch.from_numpy(np.require(x, np.float32, ["C", "W"]))
    except (TypeError, ValueError) as error:
        raise InputError("x", f"{type(x).__name__} ({error})", "samples, [N, ...]") from None


def _train(
    network: nn.Module,
    x: Tensor,
    labels: Tensor,
    loss_fn: TripletLoss,
    sampler: PKSampler,
    steps: int,
    lr: float,
) -> float:
    """Train in place; the mean loss of the last tenth of the steps."""
    network.train()
    optimizer = torch.optim.Adam(network.parameters(), lr=lr)
    losses: list[float] = []
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        for rows in itertools.islice(sampler, steps - len(losses)):
            loss = loss_fn(network(x[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        if len(losses) == steps:
            break
    return float(np.mean(losses[-max(1, steps // 10) :]))


@torch.no_grad()
def _embed(network: nn.Module, x: Tensor) -> Tensor:
    network.eval()
    return torch.cat([network(rows) for rows in torch.split(x, 512)]).double()


def _row(
    z: Tensor, ids: Array, fine_labels: ArrayLike | None, p: float, positives: str, loss: float
) -> ProbeRow:
    whole, around = diameter(z), _mean_radius(z)
    sizes = list(class_diameters(z, ids).values())
    radii = [_mean_radius(z[torch.from_numpy(ids == c)]) for c in range(int(ids.max()) + 1)]
    fine = None if fine_labels is None else retrieval(z, fine_labels, ks=(1,)).recall[1]
    return ProbeRow(
        p=p,
        positives=positives,
        class_diameter=float(np.mean(sizes)) / whole if whole else 0.0,
        within=float(torch.stack(radii).mean()) / float(around) if around else 0.0,
        modes=modes_per_class(z, ids, fine_labels).mean,
        recall=retrieval(z, ids, ks=(1,)).recall[1],
        fine_recall=fine,
        loss=loss,
    )


def _mean_radius(z: Tensor) -> Tensor:
    distance: Tensor = torch.linalg.vector_norm(z - z.mean(0), dim=1)
    return distance.mean()
