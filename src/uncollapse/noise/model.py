"""Label noise of EPS §4.2: a sample keeps its class with probability p."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike
from uncollapse._base.check import InputError, check_int, check_number


@dataclass(frozen=True)
class NoiseModel:
    """`classes` classes t; the own class has probability `p`, each other q = (1 − p)/(t − 1).

    >>> noise = NoiseModel(classes=3, p=0.6)
    >>> round(noise.q, 3), round(noise.same, 3), round(noise.different, 3)
    (0.2, 0.44, 0.28)
    """

    classes: int
    p: float

    def __post_init__(self) -> None:
        check_int("classes", self.classes, low=2)
        check_number("p", self.p, low=0.0, high=1.0)

    @property
    def q(self) -> float:
        """Probability of each class that is not the sample's own."""
        return (1 - self.p) / (self.classes - 1)

    @property
    def same(self) -> float:
        """S_same: probability that two samples of one class get equal labels."""
        return self.p**2 + (self.classes - 1) * self.q**2

    @property
    def different(self) -> float:
        """S_diff: probability that two samples of different classes get equal labels."""
        return 2 * self.p * self.q + (self.classes - 2) * self.q**2

    @property
    def probabilities(self) -> Tensor:
        """`[t, t]` float64: row c is the distribution of the label of a sample of class c.

        >>> NoiseModel(2, 0.75).probabilities.tolist()
        [[0.75, 0.25], [0.25, 0.75]]
        """
        table = torch.full((self.classes, self.classes), self.q, dtype=torch.float64)
        return table.fill_diagonal_(self.p)

    @property
    def triplet_weights(self) -> tuple[float, float, float, float]:
        """(A, B, C, E) with E[δ_ij(1 − δ_ik)] = A + B[ij] − C([ik] + [jk]) − E[ijk].

        [ij] is 1 when i and j have the same true class. It is Σ_r P_ir·P_jr·(1 − P_kr) multiplied
        out with P_ir = q + (p − q)[r is the class of i].

        >>> a, b, c, e = NoiseModel(2, 1.0).triplet_weights
        >>> a + b, a + b - 2 * c - e  # clean labels: own class with another class, with its own
        (1.0, 0.0)
        """
        q, gap = self.q, self.p - self.q
        pair = self.classes * q**2 + 2 * q * gap
        a = pair - (self.classes * q**3 + 3 * q**2 * gap)
        return a, gap**2 * (1 - q), q * gap**2, gap**3

    def labels(self, n: int) -> Tensor:
        """True classes of `n` samples, class by class, as even as n allows.

        >>> NoiseModel(3, 0.9).labels(7).tolist()
        [0, 0, 0, 1, 1, 2, 2]
        """
        check_int("n", n, low=self.classes)
        return torch.arange(n) * self.classes // n

    def sample(self, labels: ArrayLike, generator: torch.Generator) -> Tensor:
        """Noisy copy of `labels`, which are class numbers 0..t−1; rows are independent.

        >>> g = torch.Generator().manual_seed(0)
        >>> NoiseModel(4, 1.0).sample([3, 0, 2], g).tolist()
        [3, 0, 2]
        """
        own = labels if isinstance(labels, Tensor) else torch.as_tensor(np.asarray(labels))
        whole = own.ndim == 1 and not own.is_floating_point() and not own.is_complex()
        if not whole or bool(((own < 0) | (own >= self.classes)).any()):
            given = f"shape {tuple(own.shape)}, {own.dtype}, from {own.min()} to {own.max()}"
            raise InputError("labels", given, f"class numbers 0..{self.classes - 1}, one per row")
        own = own.to(torch.int64)
        keep = torch.rand(own.shape, generator=generator, dtype=torch.float64) < self.p
        step = torch.randint(1, self.classes, own.shape, generator=generator)
        return torch.where(keep.to(own.device), own, (own + step.to(own.device)) % self.classes)


def blobs(
    model: NoiseModel, n: int, *, modes: int = 1, distance: float = 1.0
) -> tuple[Tensor, Tensor]:
    """`n` points at the corners of a regular simplex with edge `distance`, and their classes.

    Every class sits on one corner, except the first, which has `modes` of them, equally filled:
    the embeddings that the proofs of EPS appendix B compare. `modes=1` is the paper's f₁ (all
    classes collapsed), `modes=2` its f₂.

    >>> z, labels = blobs(NoiseModel(2, 0.8), 8, modes=2)
    >>> labels.tolist(), len(z.unique(dim=0))
    ([0, 0, 0, 0, 1, 1, 1, 1], 3)
    """
    labels = model.labels(n)
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
