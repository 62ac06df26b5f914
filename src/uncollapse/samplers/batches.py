"""Seeded batches that can be stopped, resumed and shared between ranks."""

from __future__ import annotations

import inspect
import zlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from torch.utils.data import BatchSampler

from uncollapse._base.arrays import Array, ArrayLike, ClassLayout, label_array
from uncollapse._base.check import InputError, check_choice, check_int


class SeededBatches(BatchSampler):
    """A batch sampler whose batch i of an epoch is a function of (seed, epoch, i) alone.

    So nothing has to be replayed to resume, and every rank computes the same global batch and takes
    its own share: rank r of w the r-th of w equal parts. Iterating to the end and iterating again
    gives the next epoch; iterating again after a break gives the same epoch. `set_epoch` goes to
    the start of an epoch.

    It gives whole batches: `DataLoader(data, batch_sampler=sampler)`. As `sampler=` it would be
    taken for one of single rows, and raises; the trainers of pytorch-metric-learning, which have no
    other argument, see that it is a batch sampler and ignore their `batch_size`.
    """

    def __init__(self, seed: int, batches: int, rank: int, world_size: int) -> None:
        self.seed = check_int("seed", seed, 0)
        self.batches = check_int("batches", batches)
        self.world_size = check_int("world_size", world_size)
        self.rank = check_int("rank", rank, 0)
        if self.rank >= self.world_size:
            raise InputError("rank", rank, f"less than world_size, {world_size}")
        self.epoch = 0
        self._start = 0  # where the next iteration of this epoch begins
        self._given = 0  # batches of this epoch given out by the last iteration
        self._over = False

    @abstractmethod
    def global_batch(self, index: int) -> Array:
        """Rows of batch `index` of the current epoch, over all ranks."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What a saved state must agree with."""

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[list[int]]:
        _refuse_batches_of_batches(self)
        return self._shares()

    def _shares(self) -> Iterator[list[int]]:
        if self._over:
            self.set_epoch(self.epoch + 1)
        start, self._start = self._start, 0
        self._given = start
        for index in range(start, self.batches):
            rows = self.global_batch(index)
            share = len(rows) // self.world_size
            self._given = index + 1
            self._over = self._given == self.batches
            yield rows[self.rank * share : (self.rank + 1) * share].tolist()

    def set_epoch(self, epoch: int) -> None:
        """Begin this epoch; its batches depend on the seed and its number alone."""
        self.epoch = check_int("epoch", epoch, 0)
        self._start = self._given = 0
        self._over = False

    def state_dict(self, consumed: int | None = None) -> dict[str, Any]:
        """Where to continue: the epoch and the number of its batches that are done.

        A DataLoader with workers asks for batches before they are trained on. Pass the number of
        this epoch's batches you have really `consumed`; without it, all batches asked for count.
        """
        done = self._given if consumed is None else check_int("consumed", consumed, 0)
        if done > self.batches:
            raise InputError("consumed", done, f"at most the {self.batches} batches of an epoch")
        return {"epoch": self.epoch, "done": done, "settings": self.settings()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state` was taken: the next iteration gives the rest of that epoch."""
        own = self.settings()
        for key, value in state["settings"].items():
            if own.get(key) != value:
                raise InputError(f"state of {key}", value, f"this sampler's, {own.get(key)}")
        epoch, done = int(state["epoch"]), int(state["done"])
        self.set_epoch(epoch + done // self.batches)
        self._start = self._given = done % self.batches

    def random(self, *position: int) -> np.random.Generator:
        """The generator of one position in the stream."""
        return np.random.default_rng([self.seed, *position])


def _refuse_batches_of_batches(sampler: SeededBatches) -> None:
    """Raise where a DataLoader was given the sampler as `sampler=`, to be cut into batches again.

    It is then inside torch's own `BatchSampler`, whose `__iter__` asks for its rows. A sampler
    learns of it no earlier, and a dataset indexed by a whole batch may well answer.
    """
    caller = inspect.stack(0)[2].frame.f_locals.get("self")
    if isinstance(caller, BatchSampler) and getattr(caller, "sampler", None) is sampler:
        name = type(sampler).__name__
        allowed = f"DataLoader(dataset, batch_sampler=...): a {name} gives whole batches"
        raise InputError("sampler", f"DataLoader(dataset, sampler={name}(...))", allowed)


class PKSampler(SeededBatches):
    """A batch sampler: `p` distinct classes, uniform over classes, and `k` samples of each.

    The PK batches of HNM §4 and Hermans et al. 2017.
    Samples of a class are drawn without replacement, class after class. Pass it to a DataLoader as
    `batch_sampler`. HNM's law is that collapse grows with p × k: see `uncollapse.mining.Miner`'s
    `pool` for a large batch that does not mine over all of it.

    Args:
        labels: one label per sample of the dataset.
        p: classes in a batch; a multiple of `world_size`, so that each rank gets whole classes.
        k: samples of each.
        seed: decides every batch, together with the epoch.
        batches: batches in an epoch; by default enough to draw as many samples as the dataset
            has.
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
        check_choice("short", short, ("repeat", "skip", "error"))
        self.layout = ClassLayout.of(labels, None)
        default = max(1, len(self.layout.ids) // (self.p * self.k))
        super().__init__(seed, default if batches is None else batches, rank, world_size)
        if self.p % self.world_size:
            raise InputError("p", p, f"a multiple of world_size, {world_size}")
        counts = self.layout.counts
        if short == "error" and int(counts.min()) < self.k:
            label = self.layout.classes[counts.argmin()]
            given = f"label {label} with {counts.min()} samples"
            raise InputError("labels", given, f"at least k = {k} samples of each (short='error')")
        least = self.k if short == "skip" else 2
        self.drawn = np.flatnonzero(counts >= least)
        if len(self.drawn) < self.p:
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


class UniformBatchSampler(SeededBatches):
    """A batch sampler: `batch_size` samples, all equally likely, none twice in a batch.

    As in HNM appendix D. Passes over the data in a new order each time; the remainder of a pass is
    left out. Batches may hold a class once, so anchors may lack positives: `check_batches` says how
    often.

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
        position = self.epoch, index // self.in_pass
        if self._pass is None or self._pass[0] != position:
            self._pass = position, self.random(*position).permutation(self.size)
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
