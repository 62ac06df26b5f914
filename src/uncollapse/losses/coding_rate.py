"""Anti-Collapse loss, the coding rate of a batch: Jiang et al. 2024 (arXiv 2407.03106)."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from uncollapse.losses._regulariser import Regulariser

__all__ = ["CodingRateLoss", "rate_of"]


def rate_of(rows: Tensor, distortion: float = 0.5) -> Tensor:
    """R(Z) = 1/2 log det(I + d/(n ε²) ZᵀZ), ε² the `distortion`: nats to code n rows to it.

    After Yu et al. 2020 (maximal coding rate reduction). Of ZᵀZ and ZZᵀ, which have the same
    determinant here, the smaller.

    >>> rate_of(torch.eye(2), distortion=1.0)  # 1/2 log 2² = log 2
    tensor(0.6931)
    """
    n, dim = rows.shape
    gram = rows.T @ rows if dim <= n else rows @ rows.T
    unit = torch.eye(len(gram), dtype=rows.dtype, device=rows.device)
    factor = torch.linalg.cholesky(unit + dim / (n * distortion) * gram)
    half: Tensor = factor.diagonal().log().sum()  # log det is twice that: the factor enters squared
    return half


class CodingRateLoss(Regulariser):
    """-R(Z), the coding rate of the batch: the more volume its rows take up, the cheaper.

    R grows with every direction that is used, and most for those that are used least: on the unit
    sphere, where rows are put unless `normalize=False`, it is largest where the singular values of
    the batch are all alike. Its scale is that of min(N, dim)/2 · log: weights are small.

    Needs one row; labels do not matter. The paper takes it of samples, as here, or of the class
    proxies of another loss; the authors' code minimises exp(-R), which for samples leaves no
    gradient once R is a few dozens.

    Siblings: `VarianceCovarianceLoss` stops charging once the spread is enough; this one never.

    Collapse: when all embeddings have one direction R is 1/2 log(1 + dim/distortion), its least on
    the sphere, and the gradient is 0 along the sphere; around it rows are pushed apart, so it keeps
    an embedding out of a cone and away from a few dimensions. To scale it is blind unless
    `normalize=False`: an embedding that shrinks to the origin and keeps its directions costs the
    same. It pushes all rows apart, those of one class too: it works against class collapse, and
    against the loss that wants a class together.

    Args:
        distortion: ε²; 0.5 in the authors' code.
        normalize: of unit rows, as published; else of the rows as they are, where R has no end.

    >>> loss = CodingRateLoss(distortion=1.0)
    >>> loss(torch.eye(2)), loss(torch.ones(2, 2))  # -log 2, -1/2 log 3
    (tensor(-0.6931), tensor(-0.5493))
    """

    numbers: ClassVar = {"distortion": (1e-6, math.inf)}

    def __init__(self, *, distortion: float = 0.5, normalize: bool = True) -> None:
        super().__init__(normalize=normalize)
        self.distortion = distortion

    def cost(self, rows: Tensor) -> Tensor:
        """Minus the rate."""
        return -rate_of(rows, self.distortion)
