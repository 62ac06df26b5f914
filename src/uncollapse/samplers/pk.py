"""P classes with K samples each: the PK batches of HNM §4 and Hermans et al. 2017."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from uncollapse._base.arrays import Array, ArrayLike
from uncollapse._base.check import InputError, check_choice, check_int
from uncollapse._base.classes import ClassLayout
from uncollapse.samplers.resumable import SeededBatches

__all__ = ["PKSampler"]

_SHORT = ("repeat", "skip", "error")


class PKSampler(SeededBatches):
    """A batch sampler: `p` distinct classes, uniform over classes, and `k` samples of each.

    Samples of a class are drawn without replacement, class after class. Pass it to a DataLoader as
    `batch_sampler`. HNM's law is that collapse grows with p × k: see `uncollapse.mining.Miner`'s
    `pool` for a large batch that does not mine over all of it.

    Args:
        labels: one label per sample of the dataset.
        p: classes in a batch; a multiple of `world_size`, so that each rank gets whole classes.
        k: samples of each.
        seed: decides every batch, together with the epoch.
        batches: batches in an epoch; by default as many as it takes to show as many samples as
            there are.
        rank: this process's number, for training in several.
        world_size: the number of processes.
        short: what to do with classes of fewer than k samples: `"repeat"`: all of them, again and
            again, each time in a new order, until there are k (a copy of the anchor can then be
            its easy positive: prefer another policy with easy positives and no augmentation);
            `"skip"`: such classes are never drawn; `"error"`. Classes of one sample are never
            drawn: they have no positive.

    >>> sampler = PKSampler([0, 0, 0, 1, 1, 2, 2, 2], p=2, k=2, seed=0)
    >>> len(sampler), [len(batch) for batch in sampler]
    (2, [4, 4])
    """

    def __init__(
        self,
        labels: ArrayLike,
        p: int,
        k: int,
        seed: int,
        *,
        batches: int | None = None,
        rank: int = 0,
        world_size: int = 1,
        short: str = "repeat",
    ) -> None:
        self.p, self.k, self.short = check_int("p", p), check_int("k", k, 2), short
        check_choice("short", short, _SHORT)
        self.layout = ClassLayout.of(labels, None)
        default = max(1, self.layout.size // (self.p * self.k))
        super().__init__(seed, default if batches is None else batches, rank, world_size)
        if self.p % self.world_size:
            raise InputError("p", p, f"a multiple of world_size, {world_size}")
        counts = self.layout.counts
        if short == "error" and int(counts.min()) < self.k:
            least = self.layout.classes[counts.argmin()]
            given = f"label {least} with {counts.min()} samples"
            raise InputError("labels", given, f"at least k = {k} samples of each (short='error')")
        self.drawn = np.flatnonzero(counts >= (self.k if short == "skip" else 2))
        if len(self.drawn) < self.p:
            least = self.k if short == "skip" else 2
            given = f"{p} with {len(self.drawn)} classes of at least {least} samples"
            raise InputError("p", given, "no more than there are such classes")

    def global_batch(self, index: int) -> Array:
        """Rows of batch `index` of the current epoch, over all ranks."""
        rng = self.random(self.epoch, index)
        classes = rng.choice(self.drawn, self.p, replace=False)
        return np.concatenate([self._samples(c, rng) for c in classes])

    def settings(self) -> dict[str, Any]:
        """What a saved state must agree with; the labels by a checksum."""
        return {
            "kind": "pk",
            "seed": self.seed,
            "p": self.p,
            "k": self.k,
            "batches": self.batches,
            "short": self.short,
            "labels": zlib.crc32(self.layout.ids.tobytes()),
        }

    def _samples(self, c: int, rng: np.random.Generator) -> Array:
        members = self.layout.members(c)
        rounds = -(-self.k // len(members))
        if rounds == 1:
            return rng.choice(members, self.k, replace=False)
        return np.concatenate([rng.permutation(members) for _ in range(rounds)])[: self.k]
