"""Gradient of Σ a_ij |z_i - z_j|² / 2 from blocks of rows of a: one or two N × N products."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["BLOCK", "Forces"]

BLOCK = 256  # rows at a time: larger blocks leave the cache, smaller ones waste the product
_WHOLE = 2048  # up to here a is kept, 16 MB, and one product of a + aᵀ takes the place of two


class Forces:
    """Takes a by blocks of rows: `block` gives where to write one, `add` says it is written."""

    def __init__(self, z: Tensor) -> None:
        n = len(z)
        self.z, self.whole = z, n <= _WHOLE
        height = n if self.whole else BLOCK
        self.matrix = torch.empty(height, n, dtype=z.dtype, device=z.device)
        self.result = torch.zeros_like(z)
        self.total = torch.zeros(n, dtype=z.dtype, device=z.device)

    def block(self, start: int, stop: int) -> Tensor:
        """`[stop - start, N]`, where rows `start` to `stop` of a go."""
        return self.matrix[start:stop] if self.whole else self.matrix[: stop - start]

    def add(self, start: int, stop: int) -> None:
        """Rows `start` to `stop` are in their block."""
        if not self.whole:
            a = self.block(start, stop)
            self.total[start:stop] += a.sum(1)
            self.total += a.sum(0)
            self.result[start:stop].addmm_(a, self.z, alpha=-1.0)
            self.result.addmm_(a.T, self.z[start:stop], alpha=-1.0)

    def gradient(self) -> Tensor:
        """The gradient, after the last block."""
        if self.whole:
            both = self.matrix.T.contiguous().add_(self.matrix)
            torch.sum(both, 1, out=self.total)
            torch.mm(both, self.z, out=self.result).neg_()
        return self.result.addcmul_(self.total[:, None], self.z)
