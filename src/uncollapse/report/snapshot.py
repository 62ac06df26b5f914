"""A finished run looked at again: a split embedded before and after training, and judged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from uncollapse._base.arrays import Array
from uncollapse._base.check import InputError
from uncollapse.data import DataError, LabelledImages
from uncollapse.health import Health, measure
from uncollapse.health.sample import balanced_rows
from uncollapse.report.scores import with_modes
from uncollapse.training import CheckpointError, Run, embed
from uncollapse.training.assemble import build_model, load_eval_data

__all__ = ["Snapshot", "settle", "take_snapshot"]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Some samples of a split with their embeddings `before` and `after` training.

    `health` is that of the trained embedding, with the untrained one as the reference.
    """

    split: str
    data: LabelledImages
    total: int
    before: Tensor
    after: Tensor
    health: Health

    @property
    def labels(self) -> Array:
        """Names of the classes, one a row."""
        return _named(self.data.labels, self.data.class_names)

    @property
    def fine_labels(self) -> Array | None:
        """Names of the fine classes, one a row."""
        fine = self.data.fine_labels
        return None if fine is None else _named(fine, self.data.fine_names)

    @property
    def finest(self) -> Array:
        """The finest labels there are."""
        fine = self.fine_labels
        return self.labels if fine is None else fine

    @property
    def finite(self) -> bool:
        """Whether there is something to draw."""
        return math.isfinite(self.health.diameter)

    @property
    def sampled(self) -> str:
        """How much of the split was looked at, in words."""
        if len(self.data) == self.total:
            return f"all {self.total:,} samples of {self.split}"
        return f"{len(self.data):,} of {self.total:,} samples of {self.split}"


def take_snapshot(run: Run, split: str, *, rows: int = 1500, seed: int = 0) -> Snapshot | str:
    """Embed a split with the network at its start and at its end; a sentence if that cannot be.

    The network at the start is built again from the config, whose seed gives the same weights.
    """
    config = run.config
    try:
        data = load_eval_data(config, split)
        trained = run.load_model("last")
        untrained = build_model(config, run.sample_shape)
    except (DataError, CheckpointError, InputError, OSError, ImportError) as error:
        return f"Nothing could be embedded from {split}: {' '.join(str(error).split())}"
    fine = data.fine_labels
    ids = torch.unique(data.labels if fine is None else fine, return_inverse=True)[1].numpy()
    chosen = data.subset(torch.from_numpy(balanced_rows(ids, rows, np.random.default_rng(seed))))
    batch = config.evaluate.batch
    if config.model.weights is None and not config.model.freeze_bn:
        settle(untrained, chosen, batch)
    before, after = (embed(model, chosen, batch=batch) for model in (untrained, trained))
    labels = _named(chosen.labels, chosen.class_names)
    health = measure(after, labels, reference=measure(before, labels))
    finest = None if chosen.fine_labels is None else chosen.fine_labels.numpy()
    health = with_modes(health, after.numpy(), labels, finest, seed=seed)
    return Snapshot(split, chosen, len(data), before, after, health)


@torch.no_grad()
def settle(model: nn.Module, data: LabelledImages, batch: int) -> None:
    """Give an untrained network batch-norm statistics such as its first training step sees.

    With those it is built with, its scale is not the one training starts from.
    """
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = 1.0  # those of the one batch
        norm.train()
    rows = torch.linspace(0, len(data) - 1, min(len(data), max(batch, 256))).long()
    model(data[rows][0])  # rows from end to end: sets are often sorted by class
    model.eval()


def _named(labels: Tensor, names: Mapping[int, str]) -> Array:
    if not names:
        return labels.numpy()
    return np.array([names.get(value, str(value)) for value in labels.tolist()])
