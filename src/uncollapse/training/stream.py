"""Batches without end from a seeded sampler, with a place that can be saved and returned to."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import torch
from torch import Tensor

from uncollapse.data import LabelledImages
from uncollapse.samplers.base import SeededBatches

__all__ = ["BatchStream"]


class BatchStream:
    """`(images, rows)` for ever; `place` is the number of batches taken so far.

    With `workers` the images are read ahead in other processes; the batches stay the same.
    """

    def __init__(
        self, data: LabelledImages, sampler: SeededBatches, *, workers: int = 0, place: int = 0
    ) -> None:
        self.data, self.place = data, place
        epoch, done = divmod(place, len(sampler))
        sampler.load_state_dict(sampler.state_dict() | {"epoch": epoch, "done": done})
        self._batches = self._ahead(sampler, workers) if workers else self._read(sampler)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self

    def __next__(self) -> tuple[Tensor, Tensor]:
        images, rows = next(self._batches)
        self.place += 1
        return images, torch.as_tensor(rows)

    def _read(self, sampler: SeededBatches) -> Iterator[tuple[Tensor, list[int]]]:
        for rows in _endless(sampler):
            yield self.data[rows][0], rows

    def _ahead(self, sampler: SeededBatches, workers: int) -> Iterator[tuple[Tensor, list[int]]]:
        asked: deque[list[int]] = deque()
        for images, _ in self.data.loader(_Remembered(sampler, asked), workers=workers):
            yield images, asked.popleft()


class _Remembered:
    """The sampler's batches for a loader, remembered in the order they were asked for."""

    def __init__(self, sampler: SeededBatches, asked: deque[list[int]]) -> None:
        self.sampler, self.asked = sampler, asked

    def __iter__(self) -> Iterator[list[int]]:
        for rows in _endless(self.sampler):
            self.asked.append(rows)
            yield rows


def _endless(sampler: SeededBatches) -> Iterator[list[int]]:
    """Epoch after epoch: at the end of one the sampler goes on to the next."""
    while True:
        yield from sampler
