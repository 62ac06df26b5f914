"""Which tuples a loss sees: a choice of positives and, independently, a choice of negatives."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from uncollapse._check import ArrayLike
from uncollapse.mining.triplets import Triplets

__all__ = ["Miner"]


@dataclass
class Miner:
    """Choose triplets of a batch: `positives` and `negatives` are independent words."""

    positives: str = "easy"
    negatives: str = "hard"
    pool: int | None = None
    margin: float = 0.2
    epsilon: float = 0.1
    generator: torch.Generator | None = None

    def __call__(self, embeddings: Tensor, labels: ArrayLike) -> Triplets:
        """Mine."""
        raise NotImplementedError
