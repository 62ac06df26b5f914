"""All distances of two sets, and row by row: HNM (1), differentiable as often as asked.

Products are taken in float64 about the common centre; pairs that are still too close for them are
measured by differences.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike, points
from uncollapse._base.check import InputError
from uncollapse.distances.frame import Frame, working_dtype
from uncollapse.distances.tiles import short_squares

__all__ = [
    "centre",
    "difference_norms",
    "known_distances",
    "paired_distances",
    "pairwise_distances",
]

# A pair whose squared distance is below this share of |x|² + |y|² is measured by differences, so
# that the result is right to its own dtype's precision (to 1e-10 in float64).
_CLOSE = {torch.float32: 1e-9, torch.float64: 1e-5}
_CLOSE_WITHOUT_FLOAT64 = 2e-2


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
        return _Pairwise.apply(a, a, True, squared, None)  # type: ignore[no-any-return,no-untyped-call]
    b = points(y, "y")
    _same_width(a, b)
    dtype = torch.promote_types(a.dtype, b.dtype)
    return _Pairwise.apply(a.to(dtype), b.to(dtype), False, squared, None)  # type: ignore[no-any-return,no-untyped-call]


def known_distances(
    x: Tensor, y: Tensor | None = None, *, squared: bool = False, reach: float
) -> Tensor:
    """`pairwise_distances` of rows that were checked before, of one dtype: no device is waited for.

    `reach` is their largest coordinate about their centre, to a few powers of two; 0 where all rows
    coincide.
    """
    return _Pairwise.apply(x, x if y is None else y, y is None, squared, reach)  # type: ignore[no-any-return,no-untyped-call]


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
    wide = working_dtype(a)
    dtype = torch.promote_types(a.dtype, b.dtype)
    return difference_norms(a.to(wide) - b.to(wide), squared=squared).to(dtype)


def difference_norms(difference: Tensor, *, squared: bool = False) -> Tensor:
    """Lengths of rows, or their squares, with as many derivatives as asked; 0 at 0."""
    if squared:
        return difference.square().sum(dim=1)
    # vector_norm is scaled against under- and overflow, but has no second derivative at 0.
    apart = (difference != 0).any(dim=1, keepdim=True)
    norm: Tensor = torch.linalg.vector_norm(difference.masked_fill(~apart, 1.0), dim=1)
    return norm * apart[:, 0]


def centre(x: Tensor) -> Tensor:
    """Rows minus their mean, in the dtype the project computes in (float64 where there is one).

    >>> centre(torch.tensor([[1.0], [3.0]])).flatten().tolist()
    [-1.0, 1.0]
    """
    wide = x.detach().to(working_dtype(x))
    return wide - wide.mean(dim=0)


def _same_width(a: Tensor, b: Tensor) -> None:
    if a.shape[1] != b.shape[1]:
        raise InputError("y", f"{b.shape[1]} columns", f"{a.shape[1]} as in x")


class _Pairwise(torch.autograd.Function):
    """Distances and their gradient, in float64 about the common centre.

    The backward pass is made of differentiable operations, so there are second derivatives too.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, same: bool, squared: bool, reach: float | None
    ) -> Tensor:
        square, unit = _wide_squares(x, None if same else y, reach)
        wide = square.mul_(unit * unit) if squared else square.sqrt_().mul_(unit)
        result = wide.to(x.dtype)
        ctx.save_for_backward(x, y, result)
        ctx.same, ctx.squared = same, squared
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, y, result = ctx.saved_tensors
        wide = working_dtype(x)
        a, b = x.to(wide), y.to(wide)
        middle = (a if ctx.same else torch.cat([a, b])).detach().mean(0)
        a, b = a - middle, b - middle
        weight = grad.to(wide)
        if ctx.squared:
            weight = 2 * weight
        else:
            # d|x - y| = (x - y)/|x - y|; at distance 0 the subgradient 0 is taken.
            apart = result > 0
            weight = weight * apart / result.to(wide).masked_fill(~apart, 1.0)
        if ctx.same:
            weight = weight + weight.T
            return (weight.sum(1, keepdim=True) * a - weight @ a).to(x.dtype), *[None] * 4
        grad_x = weight.sum(1, keepdim=True) * a - weight @ b
        grad_y = weight.sum(0)[:, None] * b - weight.T @ a
        return grad_x.to(x.dtype), grad_y.to(y.dtype), None, None, None


def _wide_squares(
    x: Tensor, y: Tensor | None, reach: float | None
) -> tuple[Tensor, float | Tensor]:
    """Squared distances over unit², and the unit: a power of two, so squares never underflow."""
    sets, dtype = [x] if y is None else [x, y], working_dtype(x)
    frames = Frame.of_sets(sets, dtype=dtype, known=reach)
    a, b = frames[0], frames[-1]
    square = short_squares(a, slice(None), b).add_(a.norms[:, None]).clamp_(min=0.0)
    share = _CLOSE[x.dtype] if dtype == torch.float64 else _CLOSE_WITHOUT_FLOAT64
    close = square <= share * (a.norms[:, None] + b.norms)
    if y is None:
        close.triu_(1)
    rows, columns = close.nonzero(as_tuple=True)
    if len(rows):
        square[rows, columns] = a.squares(rows, columns, b)
    if y is None:
        square = square.triu_(1)
        square += square.T.clone()
    return square, a.unit
