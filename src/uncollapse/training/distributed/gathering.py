"""Rows of all ranks on every rank, with gradients: mining and losses see the whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, distributed

from uncollapse._base.check import check_choice
from uncollapse.training.distributed.ranks import ALONE, Ranks, together

__all__ = ["gather"]

_ADJOINTS = ("sum", "own")


def gather(
    x: Tensor,
    ranks: Ranks = ALONE,
    *,
    counts: Sequence[int] | None = None,
    adjoint: str = "sum",
) -> Tensor:
    """The rows of all ranks in order of rank, `[Σ counts, ...]`, the same on each.

    Shares may differ in length; `counts` saves asking for the lengths where they are known.

    `adjoint` says what goes back to a rank's rows. `"sum"`: the gradients that all ranks have for
    them, added up: right whatever the ranks do with the rows, and what
    `DistributedDataParallel`, which averages, needs where each rank computes the same loss of the
    whole. `"own"`: this rank's gradient for them alone: the same thing, without any traffic, where
    every rank computes the same loss and parameter gradients are added up (`sum_gradients`).

    >>> gather(torch.tensor([[1.0], [2.0]])).tolist()
    [[1.0], [2.0]]
    """
    check_choice("adjoint", adjoint, _ADJOINTS)
    if ranks.size == 1:
        return x
    if counts is None:
        counts = _all_gather(torch.tensor([len(x)]), [1] * ranks.size, ranks).tolist()
    return _Gather.apply(x, list(counts), ranks, adjoint)  # type: ignore[no-any-return,no-untyped-call]


def _all_gather(x: Tensor, counts: list[int], ranks: Ranks) -> Tensor:
    """Shares are padded to the longest: not every backend takes shares of different lengths."""
    longest = max(counts)
    padded = x.contiguous()
    if len(x) < longest:
        padded = torch.cat([x, x.new_zeros(longest - len(x), *x.shape[1:])])
    parts = [torch.empty_like(padded) for _ in counts]
    with together(ranks):
        distributed.all_gather(parts, padded)
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, counts: list[int], ranks: Ranks, adjoint: str) -> Tensor:
        start = sum(counts[: ranks.rank])
        ctx.own, ctx.ranks, ctx.adjoint = slice(start, start + len(x)), ranks, adjoint
        return _all_gather(x.detach(), counts, ranks)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        if ctx.adjoint == "sum":
            gradient = gradient.contiguous().clone()
            with together(ctx.ranks):
                distributed.all_reduce(gradient)
        return gradient[ctx.own], None, None, None
