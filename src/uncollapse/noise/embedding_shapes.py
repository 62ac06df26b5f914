"""The embeddings the proofs compare: collapsed classes, and a class with modes (EPS appendix B)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from uncollapse._base.check import InputError, check_int, check_number
from uncollapse.noise.model import NoiseModel

__all__ = ["blobs", "simplex"]


def blobs(
    model: NoiseModel, n: int, *, modes: int = 1, distance: float = 1.0
) -> tuple[Tensor, Tensor]:
    """`n` points at the corners of a regular simplex with edge `distance`, and their classes.

    Every class sits on one corner, except the first, which has `modes` of them, equally filled.
    `modes=1` is the paper's f₁ (all classes collapsed), `modes=2` its f₂.

    >>> z, labels = blobs(NoiseModel(2, 0.8), 8, modes=2)
    >>> labels.tolist(), len(z.unique(dim=0))
    ([0, 0, 0, 0, 1, 1, 1, 1], 3)
    """
    labels = model.labels(check_int("n", n, low=model.classes))
    first = int((labels == 0).sum())
    if check_int("modes", modes) > first:
        raise InputError("modes", modes, f"at most the {first} samples of the first class")
    corner = labels + modes - 1
    corner[:first] = torch.arange(first) * modes // first
    return simplex(model.classes + modes - 1, distance)[corner], labels


def simplex(count: int, distance: float = 1.0) -> Tensor:
    """`count` points in R^(count − 1), float64, every two of them `distance` apart.

    >>> simplex(2, 3.0).flatten().tolist()
    [0.0, 3.0]
    """
    check_int("count", count)
    check_number("distance", distance, low=0.0)
    corners = torch.zeros(count, max(count - 1, 1), dtype=torch.float64)
    for k in range(1, count):
        # The k-th corner lies above the centroid of those before it, which have edge 1.
        corners[k, : k - 1] = corners[:k, : k - 1].mean(0)
        corners[k, k - 1] = math.sqrt((k + 1) / (2 * k))
    return corners * distance
