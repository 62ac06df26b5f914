"""Batches without end from a seeded sampler, with a place that can be saved and returned to."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from uncollapse.data import LabelledImages

__all__ = ["BatchSampler", "BatchStream"]


class BatchSampler(Protocol):
    """What a sampler has to do: the same epoch number gives the same batches."""

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch the next iteration runs over."""

    def __iter__(self) -> Iterator[list[int]]: ...


class BatchStream:
    """`(images, rows)` for ever; `place` is the number of batches taken so far.

    With `workers` the images are read ahead in other processes; the batches stay the same.
    """

    def __init__(
        self, data: LabelledImages, sampler: BatchSampler, *, workers: int = 0, place: int = 0
    ) -> None:
        self.data, self.sampler, self.workers, self.place = data, sampler, workers, place
        self._ahead: deque[list[int]] = deque()
        self._batches = self._read()

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self

    def __next__(self) -> tuple[Tensor, Tensor]:
        images, rows = next(self._batches)
        self.place += 1
        return images, torch.as_tensor(rows)

    def _read(self) -> Iterator[tuple[Tensor, list[int]]]:
        if self.workers == 0:
            for rows in self._rows():
                yield self.data[rows][0], rows
        for images, _ in self.data.loader(_Recorded(self), workers=self.workers):
            yield images, self._ahead.popleft()

    def _rows(self) -> Iterator[list[int]]:
        """Row numbers of every batch from `place` on, epoch after epoch."""
        seen, epoch = 0, 0
        while True:
            self.sampler.set_epoch(epoch)
            before = seen
            for rows in self.sampler:
                if seen >= self.place:
                    yield rows
                seen += 1
            if seen == before:
                raise RuntimeError("the sampler gave no batch")
            epoch += 1


class _Recorded:
    """The stream's row numbers as a loader's sampler, remembered in the order they were asked."""

    def __init__(self, stream: BatchStream) -> None:
        self.stream = stream

    def __iter__(self) -> Iterator[list[int]]:
        for rows in self.stream._rows():
            self.stream._ahead.append(rows)
            yield rows
