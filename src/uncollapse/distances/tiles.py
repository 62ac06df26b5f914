"""Tiles of squared distances from one product: which are certain, and exact values for the others.

Losses, mining, metrics and geometry are written on these few functions and on `Frame`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from uncollapse.distances.frame import on_host

BLOCK = 256  # rows of a block: larger ones leave the cache, smaller ones waste the product
# A squared distance below this share of |x|² + |y|² is taken from differences where its value and
# its gradient are used: the product keeps too few digits of it.
CLOSE = {torch.float32: 2e-2, torch.float64: 1e-7}
_KEPT = 2048  # up to so many rows all slopes are kept, 16 MB, and one product replaces two
_MANY = 1 / 32  # of a block's pairs: from there on a float64 product is faster than differences
_CHUNK = 1 << 18  # differences held at a time: 2 MB in float64


def close_pairs(square: Tensor, own: Tensor, norms: Tensor) -> tuple[Tensor, Tensor] | None:
    """Rows and columns of a block whose squared distance is small beside |x|² + |y|².

    `own` `[b, 1]` and `norms` `[N]` are the squared norms of its rows and of its columns. None
    where there is no such pair, which the minimum of each row usually shows, and on a device, whose
    blocks are by differences.
    """
    share, least = CLOSE[square.dtype], square.amin(1, keepdim=True)
    if not on_host(square) or bool((least > share * (own + norms.amax())).all()):
        return None
    rows, columns = (square <= share * (own + norms)).nonzero(as_tuple=True)
    return (rows, columns) if len(rows) else None


def close_exponents(
    exponent: Tensor, highest: Tensor, own: Tensor, norms: Tensor, slope: float
) -> tuple[Tensor, Tensor] | None:
    """`close_pairs` of a block of `short_squares` times a negative `slope`.

    `highest` `[b, 1]` are the largest of its rows.
    """
    share, level = slope * CLOSE[exponent.dtype], slope * own
    if not on_host(exponent) or bool((highest + level < share * (own + norms.amax())).all()):
        return None
    rows, columns = (exponent >= share * (own + norms) - level).nonzero(as_tuple=True)
    return (rows, columns) if len(rows) else None


class Forces:
    """Gradient of Σ a_ij |z_i - z_j|² / 2 from blocks of rows of a: one or two N × N products.

    `block` returns the memory for some rows of a; call `add` once they are written.
    """

    def __init__(self, z: Tensor) -> None:
        n = len(z)
        self.z, self.kept = z, n <= _KEPT
        self.matrix = z.new_empty(n if self.kept else BLOCK, n)
        self.result, self.total = torch.zeros_like(z), z.new_zeros(n)

    def block(self, start: int, stop: int) -> Tensor:
        """Memory `[stop - start, N]` for rows `start` to `stop` of a."""
        return self.matrix[start:stop] if self.kept else self.matrix[: stop - start]

    def add(self, start: int, stop: int) -> None:
        """Add rows `start` to `stop`, which are in their block."""
        if not self.kept:
            a = self.block(start, stop)
            self.total[start:stop] += a.sum(1)
            self.total += a.sum(0)
            self.result[start:stop].addmm_(a, self.z, alpha=-1.0)
            self.result.addmm_(a.T, self.z[start:stop], alpha=-1.0)

    def gradient(self) -> Tensor:
        """The gradient, after the last block."""
        if self.kept:
            both = self.matrix.T.contiguous().add_(self.matrix)
            torch.sum(both, 1, out=self.total)
            torch.mm(both, self.z, out=self.result).neg_()
        return self.result.addcmul_(self.total[:, None], self.z)


def lengths(rows: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """|rows_i - rows_j| by differences, in chunks."""
    chunk = max(1, _CHUNK // rows.shape[1])
    parts = zip(torch.split(i, chunk), torch.split(j, chunk), strict=True)
    return torch.cat([torch.linalg.vector_norm(rows[a] - rows[b], dim=1) for a, b in parts])


def pull_apart(result: Tensor, rows: Tensor, i: Tensor, j: Tensor, slope: Tensor) -> None:
    """Add the gradient of Σ slope |rows_i - rows_j|² / 2 to `result`, by differences."""
    chunk = max(1, _CHUNK // rows.shape[1])
    parts = (torch.split(index, chunk) for index in (i, j, slope))
    for a, b, s in zip(*parts, strict=True):
        force = (rows[a] - rows[b]).mul_(s[:, None])
        result.index_add_(0, a, force).index_add_(0, b, force, alpha=-1)


def take_apart(
    result: Tensor, rows: Tensor, start: int, slope: Tensor, close: tuple[Tensor, Tensor]
) -> None:
    """Move the close pairs of a block out of its slopes: their gradient is added to `result`.

    `slope` has the rows from `start` on. By differences, or by float64 products of centred `rows`.
    """
    i, j = close
    exact = slope[close].to(rows.dtype)
    slope[close] = 0.0
    if rows.dtype != torch.float64 or len(i) < _MANY * slope.numel():
        pull_apart(result, rows, i + start, j, exact)
        return
    part = slice(start, start + len(slope))
    dense = torch.zeros_like(slope, dtype=rows.dtype)
    dense[close] = exact
    result[part] += dense.sum(1, keepdim=True) * rows[part] - dense @ rows
    result += dense.sum(0)[:, None] * rows - dense.T @ rows[part]
