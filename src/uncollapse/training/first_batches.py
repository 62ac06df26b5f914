"""A network and the first batches of its training: what they make of batch norm, and figures."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from uncollapse._base.arrays import ArrayLike
from uncollapse.data import LabelledImages
from uncollapse.geometry import diameter, hard_mined_loss
from uncollapse.health import drift
from uncollapse.health.loss_pull import pull
from uncollapse.health.modal_drift import MODE_NEIGHBOURS, mode_rates
from uncollapse.health.radial_drift import has_unit_rows
from uncollapse.losses import Loss
from uncollapse.losses.memory import memories
from uncollapse.training.assemble import build_sampler
from uncollapse.training.config import Config
from uncollapse.training.distributed.ranks import ALONE
from uncollapse.training.distributed.shared_batchnorm import SharedBatchNorm
from uncollapse.training.measures import BatchFigures
from uncollapse.training.stream import endless

__all__ = ["average_statistics", "settled_copy", "undisturbed"]

_BATCHES = 8


def settled_copy(
    model: nn.Module, loss: Loss, config: Config, train: LabelledImages
) -> tuple[nn.Module, BatchFigures]:
    """A copy of the network that has seen the first 8 batches of its training, and their figures.

    The batches are those of the run's own sampler, of `train` as it is given. The copy is in
    evaluation mode, batch norm that has seen nothing yet at the plain mean of the batches'
    statistics; what is frozen, or was loaded with weights, keeps its own.
    Network, loss and random state are left as they are; every rank may do this for itself.
    """
    network, charge = copy.deepcopy(model), copy.deepcopy(loss).cpu()
    for layer in network.modules():
        if isinstance(layer, SharedBatchNorm):
            layer.ranks = ALONE  # whole batches, by whoever measures
    device = next(network.parameters(), torch.empty(0)).device
    average_statistics(network.train())
    labels = train.label_index
    with undisturbed(config.seed, device), torch.no_grad():
        batches = []
        for rows in itertools.islice(endless(build_sampler(config, train)), _BATCHES):
            z = network(train[rows][0].to(device)).float().cpu()
            batches.append((z, labels[rows], torch.as_tensor(rows)))
        figures = _figures(batches, charge, config)
    return network.eval(), figures


def average_statistics(model: nn.Module) -> None:
    """Let batch norm remember the plain mean of all batches it sees from now on.

    Batch norm that has seen nothing would be evaluated with mean 0 and variance 1, which is another
    network: a GoogLeNet's diameter is then 0. Layers that are frozen or know something are left as
    they are.

    >>> norm = nn.BatchNorm1d(2)
    >>> average_statistics(norm)
    >>> norm.momentum is None
    True
    """
    for layer in model.modules():
        if not isinstance(layer, _BatchNorm) or not layer.training:
            continue
        knows = layer.running_mean is not None and bool(layer.running_mean.any())
        layer.momentum = 0.0 if knows else None


@contextmanager
def undisturbed(seed: int, device: torch.device) -> Iterator[None]:
    """Torch's own random state at `seed` inside, and as it was afterwards."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            torch.cuda.manual_seed(seed)
        yield


def _figures(
    batches: list[tuple[Tensor, Tensor, Tensor]], loss: Loss, config: Config
) -> BatchFigures:
    shares = [_share_of_anchors(labels) for _, labels, _ in batches]
    margin, count = config.loss.hinge_margin, len(batches)
    if not all(bool(torch.isfinite(z).all()) for z, _, _ in batches):
        unknown = None if margin is None else math.nan
        anchors = sum(shares) / count
        return BatchFigures(count, math.nan, unknown, math.nan, unknown, anchors)
    usable = [batch for batch, share in zip(batches, shares, strict=True) if share > 0.0]
    for memory in memories(loss):  # that of a run that has not begun: these batches
        memory.eval()
        if not len(memory.memory):
            for z, y, rows in batches:
                memory.enqueue(z, y, rows)
    hardest = slope = None
    if margin is not None:
        hardest = sum(hard_mined_loss(z, y, margin) for z, y, _ in usable) / count
        pairs = [(z, y) for z, y, _ in usable]
        unit = bool(pairs) and has_unit_rows(pairs[0][0])
        slope = drift(loss, pairs, normalized=unit).value if pairs else 0.0
    return BatchFigures(
        count=count,
        diameter=sum(diameter(z) for z, _, _ in batches) / count,
        hard_mined_loss=hardest,
        loss=sum(float(loss(z, y, sample_ids=rows)) for z, y, rows in usable) / count,
        drift=slope,
        anchors=sum(shares) / count,
        modes=_mode_drift(usable, loss),  # last: the figures above draw from the miner first
    )


def _mode_drift(batches: list[tuple[Tensor, Tensor, Tensor]], loss: Loss) -> float | None:
    """Mean over the batches that show modes, as `mode_drift` has it; None where none does."""
    seen = []
    for z, labels, rows in batches:

        def charge(given: Tensor, y: ArrayLike, ids: Tensor = rows) -> Tensor:
            value: Tensor = loss(given, y, sample_ids=ids)
            return value

        found = pull(charge, z, labels, loss.normalize or has_unit_rows(z))
        seen.append(mode_rates(found, labels, MODE_NEIGHBOURS)[0])
    known = [value for value in seen if not math.isnan(value)]
    return sum(known) / len(known) if known else None


def _share_of_anchors(labels: Tensor) -> float:
    """Samples with a positive, of a batch with a negative; a uniform batch may hold no triplet."""
    _, inverse, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    return float((counts[inverse] > 1).float().mean()) if len(counts) > 1 else 0.0
