"""What the frozen part of a run's network makes of its samples: computed once, then read."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from uncollapse.backbones import Front
from uncollapse.data import LabelledImages, with_features
from uncollapse.training.config import Config

__all__ = ["uses_features", "with_frozen_features"]


def uses_features(config: Config) -> bool:
    """Whether samples are read as features: something is frozen, and no sample is augmented.

    >>> uses_features(Config())
    False
    """
    return config.model.freeze is not False and config.data.augment in ("none", [])


def with_frozen_features(
    data: LabelledImages, front: Front, config: Config, device: torch.device
) -> LabelledImages:
    """The samples with their features, from the cache; `data.transform` is that of evaluation."""
    front = front.to(device)

    def compute(samples: Tensor) -> Tensor:
        if samples.ndim == 4:  # half as long on a CPU, and the way GPUs like it
            samples = samples.contiguous(memory_format=torch.channels_last)
        made: Tensor = front(samples.to(device))
        return made

    return with_features(data, compute, _identity(front, config))


def _identity(front: Front, config: Config) -> str:
    """The network by its structure and weights, and how its samples are prepared."""
    digest = hashlib.blake2b(repr(front).encode(), digest_size=16)
    for name, tensor in front.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().data)
    c = config.data
    return f"{config.model.backbone} {config.model.freeze} {digest.hexdigest()} {c.mean} {c.std}"
