"""VICReg's variance and covariance terms: Bardes et al. 2022; beside labels, Zhu et al. 2023."""

from __future__ import annotations

import math
from typing import ClassVar

from torch import Tensor

from uncollapse.losses._regulariser import Regulariser

__all__ = ["VarianceCovarianceLoss", "covariance_term", "variance_term"]


def variance_term(rows: Tensor, target: float = 1.0, eps: float = 1e-4) -> Tensor:
    """v(Z) = 1/d Σ_j max(0, γ - sqrt(Var(z_j) + ε)), over the d columns z_j; γ is `target`.

    >>> import torch
    >>> variance_term(torch.tensor([[0.0, 0.0], [0.0, 2.0]]))  # γ - sqrt(ε) = 0.99 for a flat one
    tensor(0.4950)
    """
    deviation = (rows.var(0) + eps).sqrt()  # ε keeps its gradient finite in a flat column
    return (target - deviation).relu().mean()


def covariance_term(rows: Tensor) -> Tensor:
    """c(Z) = 1/d Σ_{i≠j} C_ij², with C the covariance matrix of the d columns.

    >>> import torch
    >>> covariance_term(torch.tensor([[1.0, 1.0], [-1.0, -1.0]]))  # C is 2 everywhere
    tensor(4.)
    """
    centred = rows - rows.mean(0)
    covariance = centred.T @ centred / (len(rows) - 1)
    whole = covariance.square().sum() - covariance.diagonal().square().sum()
    return whole / rows.shape[1]


class VarianceCovarianceLoss(Regulariser):
    """`variance` · v(Z) + `covariance` · c(Z): each axis spread to `target`, no two axes alike.

    VICReg without its invariance term, whose place the loss it is added to takes: Zhu et al. 2023
    call that VCReg. v charges every axis whose standard deviation over the batch is below `target`,
    c the squared covariances between axes. Blind to where the embedding is.

    Needs two rows. `normalize` takes directions times sqrt(dim), which have standard deviation 1
    on each axis where they are spread evenly: for embeddings that are compared by cosine.

    Siblings: `SIGRegLoss` asks for a whole distribution, `CodingRateLoss` for volume.

    Collapse: when all embeddings coincide it costs `variance` · (target - sqrt(eps)) and its
    gradient is 0; around that point it pushes outwards, by -<Z_c, ∇v> = 1/d Σ_j Var_j /
    sqrt(Var_j + eps): in proportion to the spread as long as that is well above sqrt(eps) = 0.01,
    and then by ever less. Batch-hard pulls in proportion to the spread too, so which of them wins
    is decided by the weight, above 0.01, and below it batch-hard does: a collapse is prevented, not
    undone. c keeps axes from becoming one (dimensional collapse). Classes, and modes of a class,
    it does not know.

    Args:
        variance: factor of v; VICReg has 25.
        covariance: factor of c; VICReg has 1.
        target: γ, the standard deviation that an axis should have: 1 in the paper.
        eps: added to each variance.
        normalize: take directions times sqrt(dim) instead of the rows.

    >>> import torch
    >>> loss = VarianceCovarianceLoss()
    >>> round(loss(torch.ones(4, 8)).item(), 4)  # 25 · 0.99
    24.75
    """

    numbers: ClassVar = {
        "variance": (0.0, math.inf),
        "covariance": (0.0, math.inf),
        "target": (0.0, math.inf),
        "eps": (1e-12, math.inf),
    }

    def __init__(
        self,
        *,
        variance: float = 25.0,
        covariance: float = 1.0,
        target: float = 1.0,
        eps: float = 1e-4,
        normalize: bool = False,
    ) -> None:
        super().__init__(normalize=normalize)
        self.variance, self.covariance = variance, covariance
        self.target, self.eps = target, eps

    def cost(self, rows: Tensor) -> Tensor:
        """Both terms; 0 for fewer than two rows."""
        if len(rows) < 2:
            return rows.sum() * 0
        seen = rows * math.sqrt(rows.shape[1]) if self.normalize else rows
        spread = variance_term(seen, self.target, self.eps)
        return self.variance * spread + self.covariance * covariance_term(seen)
