"""The processes of one run: who this one is, and the few things they must settle together."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import distributed

from uncollapse._base.check import InputError

__all__ = ["ALONE", "FirstRankError", "LostRankError", "Ranks", "is_first", "join", "together"]

T = TypeVar("T")
_ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun sets


class LostRankError(RuntimeError):
    """Another process of the run has ended or cannot be reached."""


class FirstRankError(RuntimeError):
    """Rank 0 failed at what it does for all; it says why itself."""


@dataclass(frozen=True)
class Ranks:
    """This process's `rank` of `size`.

    Alone, every method is what it says for one process and costs nothing.

    >>> ranks = Ranks(rank=1, size=3)
    >>> ranks.counts(8), ranks.share(8)
    ([3, 3, 2], slice(3, 6, None))
    """

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which writes and speaks for all."""
        return self.rank == 0

    def counts(self, rows: int) -> list[int]:
        """How many of `rows` each rank has: shares in order that differ by at most one."""
        least, more = divmod(rows, self.size)
        return [least + (rank < more) for rank in range(self.size)]

    def share(self, rows: int) -> slice:
        """Which of `rows` are this rank's."""
        counts = self.counts(rows)
        start = sum(counts[: self.rank])
        return slice(start, start + counts[self.rank])

    def any(self, flag: bool) -> bool:
        """Whether it is so on any rank."""
        return self._summed(float(flag)) > 0 if self.size > 1 else flag

    def mean(self, value: float) -> float:
        """Mean over the ranks."""
        return self._summed(value) / self.size if self.size > 1 else value

    def on_first(self, work: Callable[[], T]) -> T:
        """What `work` gives on rank 0, on every rank; a failure there is one everywhere."""
        if self.size == 1:
            return work()
        outcome: list[Any] = [None, None]
        failure: Exception | None = None
        if self.first:
            try:
                outcome[0] = work()
            except Exception as error:
                failure, outcome[1] = error, str(error)
        with together(self):
            distributed.broadcast_object_list(outcome, src=0)
        if failure is not None:
            raise failure
        if outcome[1] is not None:
            raise FirstRankError(f"rank 0 failed: {outcome[1]}")
        return outcome[0]  # type: ignore[no-any-return]

    def agree(self, what: str, value: int) -> None:
        """Raise if `value`, a checksum say, is not the same on all ranks."""
        if self.size == 1:
            return
        bounds = torch.tensor([value, -value], dtype=torch.int64)
        with together(self):
            distributed.all_reduce(bounds, distributed.ReduceOp.MAX)
        if int(bounds[0]) != -int(bounds[1]):
            raise LostRankError(f"the ranks have drifted apart: their {what} differ")

    def _summed(self, value: float) -> float:
        total = torch.tensor([value], dtype=torch.float64)
        with together(self):
            distributed.all_reduce(total)
        return float(total)


ALONE = Ranks()


@contextmanager
def join(device: torch.device, timeout: float = 1800.0) -> Iterator[Ranks]:
    """The ranks of the torchrun this process was started by; `ALONE` where it was not.

    A process group that exists already is used, and left as it is. Otherwise one is made, gloo for
    tensors on the CPU and nccl for CUDA, and ended at the end. `timeout` is how many seconds a rank
    waits for one that hangs; one that dies is noticed at once.
    """
    if not distributed.is_available() or not (
        distributed.is_initialized() or _started_by_torchrun()
    ):
        yield ALONE
        return
    made = not distributed.is_initialized()
    if str(device) not in ("cpu", "cuda"):
        raise InputError("train.device", repr(str(device)), "cpu or cuda for several ranks")
    if device.type == "cuda":  # each rank of a machine its own
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if made:
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        distributed.init_process_group(backend, timeout=timedelta(seconds=timeout))
    try:
        yield Ranks(distributed.get_rank(), distributed.get_world_size())
    finally:
        if made:
            distributed.destroy_process_group()


def is_first() -> bool:
    """Whether this process is rank 0, or alone, also before and after the run.

    >>> is_first()
    True
    """
    return not _started_by_torchrun() or os.environ["RANK"] == "0"


@contextmanager
def together(ranks: Ranks) -> Iterator[None]:
    """Around a collective: what goes wrong in it is another rank's end."""
    try:
        yield
    except RuntimeError as error:
        reason = re.sub(r"^\[[^]]*\] *", "", str(error)).split(". ")[0]  # gloo's file and line
        raise LostRankError(
            f"rank {ranks.rank} of {ranks.size} cannot reach another rank, which has ended or "
            f"hangs ({' '.join(reason.split())})"
        ) from error


def _started_by_torchrun() -> bool:
    complete = all(name in os.environ for name in _ENVIRONMENT)
    return complete and int(os.environ["WORLD_SIZE"]) > 1
