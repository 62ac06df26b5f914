"""The network a run begins with: built from its config and, with `model.head = "pca"`, its data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch

from uncollapse.backbones import Embedder
from uncollapse.backbones.head import pooled
from uncollapse.data import LabelledImages
from uncollapse.training.assemble import build_model
from uncollapse.training.config import Config
from uncollapse.training.evaluation import evenly_spaced
from uncollapse.training.sample_transforms import evaluation_transform

__all__ = ["first_network"]

_SAMPLES = 4096  # axes of more would hardly differ
_BATCH = 128


def first_network(config: Config, train: LabelledImages, shape: Iterable[int]) -> Embedder:
    """`build_model`, its head at the principal axes of the training samples if asked for.

    The same config and data give the same network.
    """
    model = build_model(config, shape)
    if config.model.head != "pca":
        return model
    data = replace(train, transform=evaluation_transform(config.data))
    rows = evenly_spaced(len(data), _SAMPLES)
    model.eval()
    with torch.no_grad():
        starts = range(0, len(rows), _BATCH)
        parts = [pooled(model.features(data[rows[s : s + _BATCH]][0])) for s in starts]
        model.head.start_from_axes(torch.cat(parts))
    return model.train()
