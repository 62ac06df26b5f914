"""Gradients of all ranks made one, in a few large messages, after the backward pass.

`DistributedDataParallel` is not used: it averages, wraps the network (names, checkpoints, the
guard's rollback) and sends while it computes. This adds up, exactly once a step, in the open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor, distributed, nn

from uncollapse.training.distributed.ranks import ALONE, Ranks, together

__all__ = ["share_gradients", "sum_gradients"]

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
    the same up to the order in which a GPU adds, and must stay so for ever.
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
