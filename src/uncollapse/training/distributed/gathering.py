"""Rows of all ranks on every rank, with gradients: mining and losses see the whole batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed, nn

from uncollapse._base.check import check_choice
from uncollapse.metrics import RetrievalResult, retrieval
from uncollapse.training.distributed.ranks import ALONE, Ranks, together

__all__ = ["gather", "share_gradients", "shared_retrieval", "sum_gradients"]


_ADJOINTS = ("sum", "own")


def gather(
    x: Tensor, ranks: Ranks = ALONE, *, counts: Sequence[int] | None = None, adjoint: str = "sum"
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


# Gradients of all ranks made one, in a few large messages, after the backward pass.

_BUCKET = 1 << 23  # elements in one message: 32 MB of float32


def sum_gradients(
    parameters: Iterable[nn.Parameter], ranks: Ranks = ALONE, *, mean: bool = False
) -> None:
    """Replace each gradient by its sum over the ranks, or its mean.

    Ranks must agree on which parameters have a gradient, as they do when they run one network.

    >>> weight = nn.Parameter(torch.zeros(2))
    >>> weight.grad = torch.ones(2)
    >>> sum_gradients([weight])
    >>> weight.grad
    tensor([1., 1.])
    """

    def add(flat: Tensor) -> None:
        distributed.all_reduce(flat)
        if mean:
            flat /= ranks.size

    _exchange(parameters, ranks, add)


def share_gradients(parameters: Iterable[nn.Parameter], ranks: Ranks = ALONE) -> None:
    """Replace each gradient by rank 0's.

    For parameters of a loss of the whole batch (proxies, β), whose gradient every rank has: it is
    the same up to the order in which a GPU adds, and must stay so.
    """
    _exchange(parameters, ranks, lambda flat: distributed.broadcast(flat, src=0))


def _exchange(
    parameters: Iterable[nn.Parameter], ranks: Ranks, collective: Callable[[Tensor], object]
) -> None:
    if ranks.size == 1:
        return
    for bucket in _buckets([p.grad for p in parameters if p.grad is not None]):
        flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
        with together(ranks):
            collective(flat)
        parts = torch.split(flat, [gradient.numel() for gradient in bucket])
        for gradient, values in zip(bucket, parts, strict=True):
            gradient.copy_(values.view_as(gradient))


def _buckets(gradients: list[Tensor]) -> Iterator[list[Tensor]]:
    """Neighbours of one kind, up to the size of a message."""
    bucket: list[Tensor] = []
    for gradient in gradients:
        size = sum(g.numel() for g in bucket) + gradient.numel()
        if bucket and (size > _BUCKET or gradient.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(gradient)
    if bucket:
        yield bucket


# Retrieval over all ranks: each ranks the whole gallery for its share of the queries.


def shared_retrieval(
    points: Tensor, labels: Tensor, ranks: Ranks = ALONE, *, ks: Sequence[int] = (1, 2, 4, 8)
) -> RetrievalResult:
    """`retrieval(points, labels, ks=ks)`, every number the same, with the queries shared out.

    Each rank holds all `points`. In one process tiles serve both sides, half the products; a share
    cannot, so N ranks take 2/N of one process's time.

    >>> shared_retrieval(torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([0, 0, 1])).recall[1]
    1.0
    """
    if ranks.size == 1 or len(points) < ranks.size:
        return retrieval(points, labels, ks=ks, progress=False)
    share = np.arange(len(points))[ranks.share(len(points))]
    part = retrieval(points, labels, ks=ks, progress=False, rows=share)
    table = torch.from_numpy(np.stack(list(part.per_query.values()), axis=1))
    whole = gather(table, ranks, counts=ranks.counts(len(points))).numpy()
    columns = (np.ascontiguousarray(column) for column in whole.T)
    terms = dict(zip(part.per_query, columns, strict=True))
    return RetrievalResult.of_terms(
        terms, labels=labels.cpu().numpy(), gallery_size=part.gallery_size, ties=part.ties
    )
