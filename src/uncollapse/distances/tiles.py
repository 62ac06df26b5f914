"""Tiles of squared distances from one product: which of them are certain, exact values for others.

Losses, mining, metrics and geometry are written on these few functions and on `Frame`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike, points
from uncollapse._base.check import InputError
from uncollapse.distances.frame import Frame, on_host, short_squares, working_dtype

BLOCK = 256  # rows of a block: larger ones leave the cache, smaller ones waste the product
# A squared distance below this share of |x|² + |y|² is taken from differences where its value and
# its gradient are used: the product keeps too few digits of it.
CLOSE = {torch.float32: 2e-2, torch.float64: 1e-7}
_KEPT = 2048  # up to so many rows all slopes are kept, 16 MB, and one product replaces two
_MANY = 1 / 32  # of a block's pairs: from there on a float64 product is faster than differences
_CHUNK = 1 << 18  # differences held at a time: 2 MB in float64


def exact_squares(x: Frame, i: Tensor | slice, y: Frame, j: Tensor | slice) -> Tensor:
    """Squared distances of all rows i to all rows j of `y` by differences, in float64.

    Equal rows are at exactly 0.
    """
    here, there = x.exact(i), y.exact(j)
    if x.collapsed:
        return here.new_zeros(len(here), len(there))
    gap = torch.cdist(here, there, compute_mode="donot_use_mm_for_euclid_dist")
    return gap.square_()


def close_pairs(square: Tensor, own: Tensor, norms: Tensor) -> tuple[Tensor, Tensor] | None:
    """Rows and columns of a block whose squared distance is small beside |x|² + |y|².

    `own` `[b, 1]` and `norms` `[N]` are the squared norms of its rows and of its columns. None
    where there is no such pair, which on a CPU each row's least value mostly tells.
    """
    share = CLOSE[square.dtype]
    if on_host(square):
        least = square.amin(1, keepdim=True)
        if bool((least > share * (own + norms.amax())).all()):
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
    if on_host(exponent) and bool((highest + level < share * (own + norms.amax())).all()):
        return None
    rows, columns = (exponent >= share * (own + norms) - level).nonzero(as_tuple=True)
    return (rows, columns) if len(rows) else None


class Forces:
    """Gradient of Σ a_ij |z_i - z_j|² / 2 from blocks of rows of a: one or two N × N products.

    `block` gives where to write rows of a, `add` says that they are written.
    """

    def __init__(self, z: Tensor) -> None:
        n = len(z)
        self.z, self.kept = z, n <= _KEPT
        self.matrix = z.new_empty(n if self.kept else BLOCK, n)
        self.result, self.total = torch.zeros_like(z), z.new_zeros(n)

    def block(self, start: int, stop: int) -> Tensor:
        """`[stop - start, N]`, where rows `start` to `stop` of a go."""
        return self.matrix[start:stop] if self.kept else self.matrix[: stop - start]

    def add(self, start: int, stop: int) -> None:
        """Rows `start` to `stop` are in their block."""
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
    """|rows_i - rows_j| by differences, a few at a time."""
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


# All distances of two sets, and row by row: HNM (1), differentiable as often as asked.

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
        return known_distances(a, squared=squared)
    b = _other_rows(y, a)
    dtype = torch.promote_types(a.dtype, b.dtype)
    return known_distances(a.to(dtype), b.to(dtype), squared=squared)


def known_distances(
    x: Tensor, y: Tensor | None = None, *, squared: bool = False, reach: float | None = None
) -> Tensor:
    """`pairwise_distances` of rows of one dtype that were checked before.

    Pass `reach`, their largest coordinate about their centre to a few powers of two (0 where all
    rows coincide), to skip a device synchronisation.
    """
    return _Pairwise.apply(x, x if y is None else y, y is None, squared, reach)  # type: ignore[no-any-return,no-untyped-call]


def paired_distances(x: ArrayLike, y: ArrayLike, *, squared: bool = False) -> Tensor:
    """Distance from each row of `x` to the same row of `y`, by direct differences.

    Differentiable, with subgradient 0 where a distance is 0; nothing is added to keep it away
    from 0.

    >>> paired_distances(torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.tensor([[3.0, 4.0]] * 2))
    tensor([5.0000, 3.6056])
    """
    a = points(x)
    b = _other_rows(y, a)
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


def _other_rows(y: ArrayLike, x: Tensor) -> Tensor:
    rows = points(y, "y")
    if rows.shape[1] != x.shape[1]:
        raise InputError("y", f"{rows.shape[1]} columns", f"{x.shape[1]} as in x")
    return rows


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
