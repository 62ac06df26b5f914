"""A network before training: its diameter, its loss, and so the bound HNM (17)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike
from uncollapse.geometry import diameter, hard_mined_loss
from uncollapse.health import drift
from uncollapse.sweep.measure import average_statistics
from uncollapse.training import Config, embed
from uncollapse.training.assemble import (
    build_loss,
    build_model,
    build_sampler,
    load_eval_data,
    pick_device,
)
from uncollapse.training.evaluation import evenly_spaced

__all__ = ["Start", "at_the_start"]

_BATCHES = 8
_ROWS = 2000  # images whose diameter is taken, as `uncollapse.sweep.diameters` takes it at the end


@dataclass(frozen=True)
class Start:
    """Means over batches of the run's own shape, and the diameter of the evaluation images."""

    diameter: float
    hardest: float
    loss: float
    drift: float
    anchors: float


@torch.no_grad()
def at_the_start(config: Config, shape: tuple[int, ...]) -> Start:
    """What (17) needs to know of the network as it was initialised.

    Batches go through it as in training, and the evaluation images are embedded with the batch
    norm statistics of those (`average_statistics` says why).
    """
    data = load_eval_data(config, config.data.train_split)
    device = pick_device(config.train.device)
    model = build_model(config, shape).to(device).train()
    loss_fn: Callable[[Tensor, ArrayLike], Tensor] = build_loss(config, data)
    margin = config.loss.mining_margin
    average_statistics(model)
    embedded, shares = [], []
    for rows in itertools.islice(build_sampler(config, data), _BATCHES):
        images, labels = data[rows]
        z = model(images.to(device)).float().cpu()
        _, inverse, counts = torch.unique(labels, return_inverse=True, return_counts=True)
        shares.append(float((counts[inverse] > 1).float().mean()))
        if shares[-1] > 0.0 and len(counts) > 1:  # a uniform batch may hold no triplet
            embedded.append((z, labels))
    split = next(iter(config.data.eval_splits), config.data.train_split)
    judged = load_eval_data(config, split)
    part = judged.subset(evenly_spaced(len(judged), _ROWS))
    return Start(
        diameter=diameter(embed(model, part, batch=config.evaluate.batch)),
        hardest=sum(hard_mined_loss(z, y, margin) for z, y in embedded) / len(shares),
        loss=sum(float(loss_fn(z, y)) for z, y in embedded) / len(shares),
        drift=drift(loss_fn, embedded).value if embedded else 0.0,
        anchors=sum(shares) / len(shares),
    )
