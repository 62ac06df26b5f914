"""A batch in the frame where its distances can be trusted: own centre, own scale, float64 rows.

Only the O(N·d) part is float64. Products are taken of float32 rows (float64 for float64 input)
that have been centred and scaled first, so they keep their digits at any spread.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from uncollapse.distances import binary_scale, float32_is_exact, working_dtype

__all__ = ["Frame", "attach", "full_precision", "unit_rows"]


@dataclass(frozen=True)
class Frame:
    """Rows of a batch about their mean, over a power of two; off the graph.

    `|y_i - y_j| = unit · |rows_i - rows_j|` for the embeddings y, divided by their norms if asked.
    `z` is `rows` in the dtype products are taken in. `unit` is 0 when all rows are equal.
    """

    y: Tensor
    rows: Tensor
    z: Tensor
    unit: float
    inverse_norm: Tensor | None

    @classmethod
    def of(cls, embeddings: Tensor, normalize: bool) -> Frame:
        """Frame of `[N, d]` embeddings, N >= 1."""
        wide = embeddings.detach().to(working_dtype(embeddings))
        inverse = None
        if normalize:
            norm = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
            inverse = torch.where(norm > 0, 1 / norm, torch.zeros_like(norm))
            wide = wide / norm.masked_fill(norm == 0, 1.0)
        # The first row goes first: equal rows then give exact zeros, which a rounded mean does not.
        rows = wide - wide[0]
        rows -= rows.mean(dim=0)
        low, high = torch.aminmax(rows)
        largest = max(float(high), -float(low))
        # Rows of length 1 that differ by no more than their rounding are one point.
        if largest <= (4 * torch.finfo(rows.dtype).eps if normalize else 0.0):
            rows.zero_()
            return cls(wide, rows, rows.to(_product_dtype(embeddings)), 0.0, inverse)
        unit = binary_scale(largest)
        rows /= unit
        return cls(wide, rows, rows.to(_product_dtype(embeddings)), unit, inverse)

    def pull_back(self, gradient: Tensor) -> Tensor:
        """Gradient with respect to the embeddings, from the one with respect to `unit · rows`.

        May write the result over what it is given.
        """
        if self.inverse_norm is None:
            return gradient
        radial = (gradient * self.y).sum(dim=1, keepdim=True)
        return (gradient - radial * self.y) * self.inverse_norm


def attach(embeddings: Tensor, value: float | Tensor, gradient: Tensor) -> Tensor:
    """A scalar of the embeddings' dtype, whose backward pass hands `gradient` to the embeddings."""
    scalar = torch.as_tensor(value, dtype=embeddings.dtype, device=embeddings.device)
    return _Attach.apply(embeddings, scalar, gradient.to(embeddings.dtype))  # type: ignore[no-any-return,no-untyped-call]


def unit_rows(x: Tensor, normalize: bool) -> Tensor:
    """Rows of `x` in the working dtype, on the graph, of length 1 if asked; a zero row stays 0."""
    wide = x.to(working_dtype(x))
    if not normalize:
        return wide
    norm = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
    whole = norm > 0
    return torch.where(whole, wide / norm.masked_fill(~whole, 1.0), torch.zeros_like(wide))


def full_precision(x: Tensor) -> AbstractContextManager[Any]:
    """No autocast inside: a product in bfloat16 has no digits left for a small distance."""
    return torch.autocast(x.device.type, enabled=False)


def _product_dtype(x: Tensor) -> torch.dtype:
    """The embeddings' own, or float64 where float32 products have been set to fewer digits."""
    return x.dtype if float32_is_exact() else working_dtype(x)


class _Attach(torch.autograd.Function):
    """Value and gradient were computed together; backward only scales the gradient."""

    @staticmethod
    def forward(ctx: Any, embeddings: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "this loss has no second derivative: create_graph=True was asked for"
            )
        (gradient,) = ctx.saved_tensors
        return gradient * upstream, None, None
