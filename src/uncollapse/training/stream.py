"""Batches without end from a seeded sampler, with a place that can be saved and returned to.

Every rank knows the rows of the whole batch and reads the images of its own share.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import torch
from torch import Tensor

from uncollapse.data import LabelledImages
from uncollapse.samplers.resumable import SeededBatches
from uncollapse.training.distributed import ALONE, Ranks

__all__ = ["BatchStream", "endless"]


class BatchStream:
    """`(images, rows)` for ever; `place` is the number of batches taken so far.

    `images` are this rank's share of the batch, `rows` those of the whole. With `workers` the
    images are read ahead in other processes; the batches stay the same.
    """

    def __init__(
        self,
        data: LabelledImages,
        sampler: SeededBatches,
        *,
        workers: int = 0,
        place: int = 0,
        ranks: Ranks = ALONE,
    ) -> None:
        self.data, self.place, self.ranks = data, place, ranks
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
        for rows in endless(sampler):
            yield self.data[rows[self.ranks.share(len(rows))]][0], rows

    def _ahead(self, sampler: SeededBatches, workers: int) -> Iterator[tuple[Tensor, list[int]]]:
        asked: deque[list[int]] = deque()
        for images, _ in self.data.loader(_Remembered(sampler, asked, self.ranks), workers=workers):
            yield images, asked.popleft()


class _Remembered:
    """This rank's shares for a loader; the batches are remembered in the order they were asked."""

    def __init__(self, sampler: SeededBatches, asked: deque[list[int]], ranks: Ranks) -> None:
        self.sampler, self.asked, self.ranks = sampler, asked, ranks

    def __iter__(self) -> Iterator[list[int]]:
        for rows in endless(self.sampler):
            self.asked.append(rows)
            yield rows[self.ranks.share(len(rows))]


def endless(sampler: SeededBatches) -> Iterator[list[int]]:
    """Epoch after epoch: at the end of one the sampler goes on to the next."""
    while True:
        yield from sampler
