"""Gradient of Σ a_ij |z_i - z_j|² / 2 from blocks of rows of a: one or two N × N products."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["BLOCK", "Forces"]

BLOCK = 256  # rows at a time: larger blocks leave the cache, smaller ones waste the product
_WHOLE = 2048  # up to here a is kept, 16 MB, and one product of a + aᵀ takes the place of two


class Forces:
    """Takes a block by block: `block` gives where to write one, `add` takes it."""

    def __init__(self, z: Tensor, kernels: Any = None) -> None:
        n = len(z)
        self.z, self.kernels = z, kernels if n <= _WHOLE else None
        height = min(BLOCK, n) if self.kernels is None else n
        self.matrix = torch.empty(height, n, dtype=z.dtype, device=z.device)
        self.result = torch.zeros_like(z)
        self.total = torch.zeros(n, dtype=z.dtype, device=z.device)

    def block(self, start: int, stop: int) -> Tensor:
        """`[stop - start, N]` to be written before `add`."""
        return self.matrix[: stop - start] if self.kernels is None else self.matrix[start:stop]

    def add(self, start: int, stop: int, a: Tensor) -> None:
        """Rows `start` to `stop` of a: what `block` gave, or another tensor without kernels."""
        if self.kernels is None:
            self.total[start:stop] += a.sum(1)
            self.total += a.sum(0)
            self.result[start:stop].addmm_(a, self.z, alpha=-1.0)
            self.result.addmm_(a.T, self.z[start:stop], alpha=-1.0)

    def gradient(self) -> Tensor:
        """The gradient, after the last block."""
        if self.kernels is not None:
            self.kernels.symmetrise(self.matrix.numpy())
            torch.sum(self.matrix, 1, out=self.total)
            torch.mm(self.matrix, self.z, out=self.result).neg_()
        return self.result.addcmul_(self.total[:, None], self.z)
