"""Seeded batches that can be stopped, resumed and shared between ranks."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from torch.utils.data import BatchSampler

from uncollapse._base.arrays import Array
from uncollapse._base.check import InputError, check_int

__all__ = ["SeededBatches"]


class SeededBatches(BatchSampler):
    """A batch sampler whose batch i of an epoch is a function of (seed, epoch, i) alone.

    So nothing has to be replayed to resume, and every rank computes the same global batch and takes
    its own share: rank r of w the r-th of w equal parts. Iterating to the end and iterating again
    gives the next epoch; iterating again after a break gives the same epoch. `set_epoch` goes to
    the start of an epoch.

    It gives whole batches: `DataLoader(data, batch_sampler=sampler)`. As `sampler=` it would be
    taken for one of single rows, and raises; the trainers of pytorch-metric-learning, which have no
    other argument, see that it is a batch sampler and leave their `batch_size` aside.
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
        """Where to go on: the epoch and the number of its batches that are done.

        A DataLoader with workers asks for batches before they are trained on. Pass the number of
        this epoch's batches you have really `consumed`; without it, all that were asked for count.
        """
        done = self._given if consumed is None else check_int("consumed", consumed, 0)
        if done > self.batches:
            raise InputError("consumed", done, f"at most the {self.batches} batches of an epoch")
        return {"epoch": self.epoch, "done": done, "settings": self.settings()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken: the next iteration gives the rest of that epoch."""
        mine = self.settings()
        for key, value in state["settings"].items():
            if mine.get(key) != value:
                raise InputError(f"state of {key}", value, f"this sampler's, {mine.get(key)}")
        epoch, done = int(state["epoch"]), int(state["done"])
        self.set_epoch(epoch + done // self.batches)
        self._start = self._given = done % self.batches

    def random(self, *place: int) -> np.random.Generator:
        """The generator of one place in the stream."""
        return np.random.default_rng([self.seed, *place])


def _refuse_batches_of_batches(sampler: SeededBatches) -> None:
    """Raise where a DataLoader was given the sampler as `sampler=`, to be cut into batches again.

    It then stands inside torch's own `BatchSampler`, whose `__iter__` asks for its rows. Nothing is
    told to a sampler before that, and a dataset indexed by a whole batch may well answer.
    """
    here = inspect.currentframe()
    asking = here.f_back.f_back if here is not None and here.f_back is not None else None
    caller = None if asking is None else asking.f_locals.get("self")
    if isinstance(caller, BatchSampler) and getattr(caller, "sampler", None) is sampler:
        name = type(sampler).__name__
        allowed = f"DataLoader(dataset, batch_sampler=...): a {name} gives whole batches"
        raise InputError("sampler", f"DataLoader(dataset, sampler={name}(...))", allowed)
