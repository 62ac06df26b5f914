"""A cross-batch memory as a network would have filled it: what a forecast mines over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from torch import Tensor

from uncollapse.losses.memory import memories

__all__ = ["filled"]


@contextmanager
def filled(loss_fn: object, batches: Iterable[tuple[Tensor, Tensor]]) -> Iterator[None]:
    """Inside, memories hold the first of these embeddings and are in use; then what they held.

    No more batches are asked for than the largest memory has room for; none without a memory.

    >>> import torch
    >>> from uncollapse.losses import ContrastiveLoss, CrossBatchMemory
    >>> loss = CrossBatchMemory(ContrastiveLoss(), 3)
    >>> with filled(loss, [(torch.eye(2), torch.tensor([0, 1]))] * 9):
    ...     len(loss.memory)
    3
    >>> len(loss.memory)
    0
    """
    found = memories(loss_fn)
    kept = [memory.kept() for memory in found]
    room = max((memory.size for memory in found), default=0)
    try:
        for memory in found:
            memory.reset()
        for z, labels in batches if room else ():
            for memory in found:
                memory.enqueue(z, labels)
            room -= len(z)
            if room <= 0:
                break
        for memory in found:
            memory.calls = memory.calls.clamp(min=memory.after)
        yield
    finally:
        for memory, then in zip(found, kept, strict=True):
            memory.put_back(then)
