"""Euclidean distances that stay right near collapse: HNM (1). The project's only source of them.

The GEMM identity |x|² + |y|² − 2x·y loses every digit once the spread of the points is small
beside their norm. Here the common centre is removed first, the product is taken in float64, and
pairs that are still too close for it are measured by direct differences.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike, points
from uncollapse._base.check import InputError

__all__ = [
    "binary_scale",
    "centre",
    "float32_is_exact",
    "paired_distances",
    "pairwise_distances",
    "working_dtype",
]

# The product's error in a squared distance is a few eps·(|x|² + |y|²). A pair whose squared
# distance is below this share of |x|² + |y|² is measured by direct differences instead, so that the
# result is right to its own dtype's precision (to 1e-10 in float64).
_CLOSE = {torch.float32: 1e-9, torch.float64: 1e-5}
_CLOSE_WITHOUT_FLOAT64 = 2e-2
_DIRECT_ELEMENTS = 1 << 21  # differences held at a time: 16 MB in float64


def pairwise_distances(
    x: ArrayLike, y: ArrayLike | None = None, *, squared: bool = False
) -> Tensor:
    """All distances between the rows of `x` and the rows of `y` (of `x` itself by default).

    Shapes `[N, d]` and `[M, d]` give `[N, M]`, in the inputs' dtype (float16 and bfloat16 give
    float32). Differentiable, with subgradient 0 where a distance is 0. With `y=None` the result is
    exactly symmetric with an exactly zero diagonal. The relative error of a float32 distance is a
    few 1e-7 at any spread, around any centre, for any mixture of tight and far groups.

    >>> pairwise_distances(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    tensor([[0., 5.],
            [5., 0.]])
    >>> pairwise_distances([[0.0], [1.0]], [[3.0]], squared=True).tolist()
    [[9.0], [4.0]]
    """
    a = points(x)
    if y is None:
        return _Pairwise.apply(a, a, True, squared)  # type: ignore[no-any-return,no-untyped-call]
    b = points(y, "y")
    _same_width(a, b)
    dtype = torch.promote_types(a.dtype, b.dtype)
    return _Pairwise.apply(a.to(dtype), b.to(dtype), False, squared)  # type: ignore[no-any-return,no-untyped-call]


def paired_distances(x: ArrayLike, y: ArrayLike, *, squared: bool = False) -> Tensor:
    """Distance from each row of `x` to the same row of `y`, by direct differences.

    Differentiable, with subgradient 0 where a distance is 0; nothing is added to keep it away
    from 0.

    >>> paired_distances(torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.tensor([[3.0, 4.0]] * 2))
    tensor([5.0000, 3.6056])
    """
    a, b = points(x), points(y, "y")
    _same_width(a, b)
    if len(a) != len(b):
        raise InputError("y", f"{len(b)} rows", f"{len(a)}, one for each row of x")
    dtype = torch.promote_types(a.dtype, b.dtype)
    wide = working_dtype(a)
    difference = a.to(wide) - b.to(wide)
    if squared:
        return difference.square().sum(dim=1).to(dtype)
    # vector_norm is scaled against under- and overflow and has subgradient 0 at 0.
    norm: Tensor = torch.linalg.vector_norm(difference, dim=1)
    return norm.to(dtype)


def centre(x: Tensor) -> Tensor:
    """Rows minus their mean, in the dtype the project computes in (float64 where there is one).

    >>> centre(torch.tensor([[1.0], [3.0]])).flatten().tolist()
    [-1.0, 1.0]
    """
    wide = x.detach().to(working_dtype(x))
    return wide - wide.mean(dim=0)


def working_dtype(x: Tensor) -> torch.dtype:
    """float64, except on devices that have none (Apple's MPS)."""
    return torch.float32 if x.device.type == "mps" else torch.float64


def float32_is_exact() -> bool:
    """Whether float32 products keep float32's digits: torch may be told to round them to fewer."""
    return torch.get_float32_matmul_precision() == "highest"


def binary_scale(largest: float) -> float:
    """The power of two just above a size, or 1 for 0: dividing by it rounds nothing.

    >>> binary_scale(5.0), binary_scale(0.0)
    (8.0, 1.0)
    """
    return math.ldexp(1.0, math.frexp(largest)[1]) if largest > 0 else 1.0


def _same_width(a: Tensor, b: Tensor) -> None:
    if a.shape[1] != b.shape[1]:
        raise InputError("y", f"{b.shape[1]} columns", f"{a.shape[1]} as in x")


class _Pairwise(torch.autograd.Function):
    """Distances and their gradient; both products are taken about the common centre."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, same: bool, squared: bool) -> Tensor:
        a, b = _common_frame(x, y, same)
        square, scale = _scaled_squares(a, b, x, y, same)
        wide = square.mul_(scale * scale) if squared else square.sqrt_().mul_(scale)
        result = wide.to(x.dtype)
        ctx.save_for_backward(x, y, result)
        ctx.same, ctx.squared = same, squared
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, y, result = ctx.saved_tensors
        a, b = _common_frame(x, y, ctx.same)
        weight = grad.to(a.dtype)
        if ctx.squared:
            weight = 2 * weight
        else:
            # d|x - y| = (x - y)/|x - y|; at distance 0 the subgradient 0 is taken.
            wide = result.to(a.dtype)
            weight = torch.where(wide > 0, weight / wide, torch.zeros_like(weight))
        if ctx.same:
            weight = weight + weight.T
            return (weight.sum(1, keepdim=True) * a - weight @ a).to(x.dtype), None, None, None
        grad_x = weight.sum(1, keepdim=True) * a - weight @ b
        grad_y = weight.sum(0)[:, None] * b - weight.T @ a
        return grad_x.to(x.dtype), grad_y.to(y.dtype), None, None


def _common_frame(x: Tensor, y: Tensor, same: bool) -> tuple[Tensor, Tensor]:
    """Both sets about their common mean, in the working dtype."""
    if same:
        a = centre(x)
        return a, a
    a, b = x.detach().to(working_dtype(x)), y.detach().to(working_dtype(y))
    middle = (a.sum(0) + b.sum(0)) / (len(a) + len(b))
    return a - middle, b - middle


def _scaled_squares(a: Tensor, b: Tensor, x: Tensor, y: Tensor, same: bool) -> tuple[Tensor, float]:
    """Squared distances over scale², and the scale: a power of two, so squares never underflow."""
    largest = float(torch.maximum(a.abs().max(), b.abs().max()))
    scale = binary_scale(largest)
    a, b = a / scale, b / scale
    norm_a, norm_b = a.square().sum(1), b.square().sum(1)
    square = torch.addmm(norm_b, a, b.T, alpha=-2.0).add_(norm_a[:, None]).clamp_(min=0.0)
    share = _CLOSE[x.dtype] if a.dtype == torch.float64 else _CLOSE_WITHOUT_FLOAT64
    close = square <= share * (norm_a[:, None] + norm_b)
    if same:
        close.triu_(1)
    rows, columns = close.nonzero(as_tuple=True)
    chunk = max(1, _DIRECT_ELEMENTS // a.shape[1])
    for start in range(0, len(rows), chunk):
        i, j = rows[start : start + chunk], columns[start : start + chunk]
        difference = (x.detach()[i].to(a.dtype) - y.detach()[j].to(a.dtype)) / scale
        square[i, j] = difference.square().sum(1)
    if same:
        square = square.triu_(1)
        square += square.T.clone()
    return square, scale
