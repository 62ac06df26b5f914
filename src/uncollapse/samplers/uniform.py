"""Batches without a promise about classes: HNM appendix D."""

from __future__ import annotations

from typing import Any

import numpy as np

from uncollapse._base.arrays import Array, ArrayLike, label_array
from uncollapse._base.check import InputError, check_int
from uncollapse.samplers.resumable import SeededBatches

__all__ = ["UniformBatchSampler"]


class UniformBatchSampler(SeededBatches):
    """A batch sampler: `batch_size` samples, all equally likely, none twice in a batch.

    Passes over the data in a new order each time; the remainder of a pass is left out. Batches may
    hold a class once, so anchors may lack positives: `check_batches` says how often.

    Args:
        data: the number of samples, or their labels (only counted).
        batch_size: samples in a batch over all ranks; a multiple of `world_size`.
        seed: decides every batch, together with the epoch.
        batches: batches in an epoch; one pass by default.
        rank: this process's number, for training in several.
        world_size: the number of processes.

    >>> sampler = UniformBatchSampler(6, batch_size=3, seed=0)
    >>> sorted(row for batch in sampler for row in batch)
    [0, 1, 2, 3, 4, 5]
    """

    def __init__(
        self,
        data: int | ArrayLike,
        batch_size: int,
        seed: int,
        *,
        batches: int | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if isinstance(data, int | np.integer):
            self.size = check_int("data", data)
        else:
            self.size = len(label_array(data, None, "data"))
        self.batch_size = check_int("batch_size", batch_size)
        if self.batch_size > self.size:
            raise InputError("batch_size", batch_size, f"at most the {self.size} samples")
        self.in_pass = self.size // self.batch_size
        default = self.in_pass if batches is None else batches
        super().__init__(seed, default, rank, world_size)
        if self.batch_size % self.world_size:
            raise InputError("batch_size", batch_size, f"a multiple of world_size, {world_size}")
        self._pass: tuple[tuple[int, int], Array] | None = None

    def global_batch(self, index: int) -> Array:
        """Rows of batch `index` of the current epoch, over all ranks."""
        place = self.epoch, index // self.in_pass
        if self._pass is None or self._pass[0] != place:
            self._pass = place, self.random(*place).permutation(self.size)
        start = index % self.in_pass * self.batch_size
        return self._pass[1][start : start + self.batch_size]

    def settings(self) -> dict[str, Any]:
        """What a saved state must agree with."""
        return {
            "kind": "uniform",
            "seed": self.seed,
            "size": self.size,
            "batch_size": self.batch_size,
            "batches": self.batches,
        }
