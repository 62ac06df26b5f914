"""The points a search runs on: squared distances by product with a known error, or exactly.

A product of centred float32 rows gives a squared distance to about 1e-6 of the squared radius. That
is fast and mostly enough to choose; `_search` sees where it is not and asks for exact ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from uncollapse.distances import binary_scale, float32_is_exact, working_dtype
from uncollapse.mining import _fast

__all__ = ["Frame", "Product", "squared_norms"]

_SAFE = (1e-12, 1e12)  # squared radii for which no square under- or overflows in float32
_ELEMENTS = 1 << 19  # differences held at a time: 4 MB in float64


@dataclass(frozen=True)
class Frame:
    """The rows `given`, and the same `centred` about their mean in the working dtype.

    `centred` is divided by `scale`, a power of two, where its squares would under- or overflow;
    squared distances here are those of `given` over `scale`². `norms` are the squared norms of
    `centred`.
    """

    given: Tensor
    centred: Tensor
    norms: Tensor
    scale: float

    @classmethod
    def of(cls, x: Tensor) -> Frame:
        """Centre the rows, and scale them if need be; equal rows are exactly 0."""
        centred, scale = _centred(x), 1.0
        norms = squared_norms(centred)
        if not _SAFE[0] < float(norms.max()) < _SAFE[1]:
            scale = binary_scale(float(centred.abs().max()))
            centred *= 1 / scale
            norms = squared_norms(centred)
        return cls(x, centred, norms, scale)

    @classmethod
    def on_sphere(cls, x: Tensor) -> Frame:
        """The same for the rows divided by their norm; a row of zeros stays at 0."""
        wide = x.to(working_dtype(x))
        norm = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
        return cls.of(wide / norm.clamp_min_(torch.finfo(wide.dtype).tiny))

    @cached_property
    def coarse(self) -> Product:
        """Products in float32, or in the working dtype where float32 products are not float32."""
        rows = self.centred.float() if float32_is_exact() else self.centred
        return Product(rows, self.norms)

    @cached_property
    def fine(self) -> Product:
        """Products in the working dtype."""
        return Product(self.centred, self.norms)

    def squares(self, i: slice | Tensor, j: Tensor) -> Tensor:
        """Squared distances of rows i to rows j by direct differences, in the working dtype.

        `b` rows `i`, and `j` of shape `[b]` or `[b, k]`.
        """
        result = torch.empty(j.shape, dtype=self.centred.dtype, device=j.device)
        wide = j.shape[1] if j.ndim == 2 else 1
        step = max(1, _ELEMENTS // (wide * self.centred.shape[1]))
        for start in range(0, len(j), step):
            rows = slice(start, start + step)
            here = self.given[i][rows] if isinstance(i, slice) else _rows(self.given, i[rows])
            there = _rows(self.given, j[rows].reshape(-1)).to(result.dtype)
            there = there.view(*j[rows].shape, -1)
            there -= here if j.ndim == 1 else here[:, None]
            result[rows] = squared_norms(there if self.scale == 1.0 else there.mul_(1 / self.scale))
        return result

    @property
    def collapsed(self) -> bool:
        """Whether all rows coincide: every product is then exactly 0."""
        return not self.coarse.radius


class Product:
    """Squared distances as |z_j|² − 2 z_i·z_j: short of |z_i|², which leaves a row's order.

    `error` bounds how far such a value is from the truth. For the product 2√d roundings are
    taken, some eight standard deviations of what they add up to, and never more than the certain d.
    """

    def __init__(self, rows: Tensor, square: Tensor) -> None:
        self.rows, self.square = rows, square.to(rows.dtype)
        self.radius = math.sqrt(float(square.max()))
        dim, unit = rows.shape[1], torch.finfo(rows.dtype).eps / 2
        growth = 2 * min(dim, 2 * math.sqrt(dim) + 4) + 8
        norm = self.square.sqrt()
        self.error = norm.mul_(unit * self.radius * growth).add_(8 * unit * self.radius**2)

    def block(self, i: slice | Tensor, out: Tensor | None = None) -> Tensor:
        """Values of the b rows `i` against all rows, `[b, N]`, into `out` where given."""
        some = self.rows[i]
        buffer = None if out is None else out[: len(some)]
        return torch.addmm(self.square, some, self.rows.T, alpha=-2.0, out=buffer)


def _centred(x: Tensor) -> Tensor:
    """Rows minus their mean in the working dtype."""
    if _fast.kernels is not None and x.device.type == "cpu":
        return torch.from_numpy(_fast.kernels.centre(x.numpy()))
    # The first row is taken off before the mean: a mean of equal rows is not exactly the row.
    centred = torch.sub(x, x[0].to(working_dtype(x)))
    centred -= centred.mean(dim=0)
    return centred


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """`x[index]`; on the CPU by NumPy, in a tenth of torch's time."""
    if x.device.type == "cpu":
        return torch.from_numpy(x.numpy().take(index.numpy(), axis=0))
    return x[index]


def squared_norms(difference: Tensor) -> Tensor:
    """Sums of squares along the last axis; in the same order of summation whatever the shape."""
    if difference.device.type == "cpu":
        array = difference.numpy()
        return torch.from_numpy(np.einsum("...d,...d->...", array, array))
    return (difference * difference).sum(dim=-1)
