"""Float32 screening with a proven error bound, so that float64 is spent on few rows only."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array
from uncollapse.distances import binary_scale

__all__ = ["Screen", "farthest_pair", "nearest_in"]


_CHUNK = 1 << 18  # elements converted to float64 at a time
_UNIT_ROUNDOFF = 2.0**-24  # of float32


@dataclass(frozen=True)
class Screen:
    """A point set about its mean, scaled into the unit ball, in float32.

    `points` are (x - mean)/scale, `squares` their squared norms. A squared distance computed from
    them as |a|² + |b|² - 2a·b in float32 is within `slack` of the true one over scale²: the bound
    d·u on a length-d dot product, the sums around it and the rounding of the points themselves
    together stay below (d + 8)·u·(|a| + |b|)².
    """

    points: Tensor
    squares: Tensor
    mean: Tensor
    scale: float
    slack: float

    @classmethod
    def of(cls, x: Tensor) -> Screen:
        """Centre and scale `x` (any float dtype, on the CPU) chunk by chunk."""
        rows, width = x.shape
        step = max(1, _CHUNK // width)
        chunks = [slice(i, min(i + step, rows)) for i in range(0, rows, step)]
        first = x[0].double()  # subtracted first, it keeps the sums small far from the origin
        total, low, high = torch.zeros_like(first), x[0], x[0]
        for c in chunks:
            total += (x[c].double() - first).sum(0)
            low, high = torch.minimum(low, x[c].amin(0)), torch.maximum(high, x[c].amax(0))
        mean = first + total / rows
        reach = torch.maximum(high.double() - mean, mean - low.double())
        # The corner of the bounding box; a power of two, so that dividing by it is exact.
        corner = float(reach.max()) * math.sqrt(width)
        scale = binary_scale(corner)
        points = torch.empty(rows, width, dtype=torch.float32)
        for c in chunks:
            points[c] = (x[c].double() - mean).div_(scale)
        squares: Tensor = torch.linalg.vecdot(points, points)
        slack = (width + 8) * _UNIT_ROUNDOFF * 4.0 * float(squares.max())
        return cls(points, squares, mean, scale, slack)

    def exact(self, x: Tensor, rows: Tensor | slice) -> Tensor:
        """The same points in float64."""
        return (x[rows].double() - self.mean).div_(self.scale)


def farthest_pair(a: Tensor, b: Tensor) -> tuple[int, int, float]:
    """The farthest pair of two float64 sets near the origin: `(i, j, distance)`."""
    square = torch.addmm(b.square().sum(1), a, b.T, alpha=-2.0).add_(a.square().sum(1)[:, None])
    i, j = divmod(int(square.argmax()), len(b))
    return i, j, float(torch.linalg.vector_norm(a[i] - b[j]))


def nearest_in(distances: Tensor) -> tuple[Array, Array]:
    """Row minima of a distance block and where they are; the lowest column wins a tie."""
    block = distances.numpy()
    columns = block.argmin(axis=1)
    return block[np.arange(len(block)), columns], columns
