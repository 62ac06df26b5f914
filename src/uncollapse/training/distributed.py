"""One run in several processes: `torchrun --nproc-per-node N -m uncollapse train run.toml`.

N ranks that hold a share of the batch each give the loss and gradients of one process that holds
it whole; `docs/scaling.md` lists what is not exact.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, distributed, nn
from torch.nn.modules.batchnorm import _BatchNorm

from uncollapse._base.check import InputError, check_choice

T = TypeVar("T")
_ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # what torchrun sets


class LostRankError(RuntimeError):
    """Another process of the run has ended or cannot be reached."""


class FirstRankError(RuntimeError):
    """Rank 0 failed in work it does for all ranks; it reports the reason itself."""


@dataclass(frozen=True)
class Ranks:
    """This process's `rank` of `size`.

    With one process every method is cheap and exchanges nothing.

    >>> ranks = Ranks(rank=1, size=3)
    >>> ranks.counts(8), ranks.share(8)
    ([3, 3, 2], slice(3, 6, None))
    """

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which writes files and messages for all ranks."""
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

    def all_values(self, value: int) -> list[int]:
        """The `value` of each rank, a count or a checksum, in order of rank."""
        return gather(torch.tensor([value]), self, counts=[1] * self.size).tolist()

    def any(self, flag: bool) -> bool:
        """Whether `flag` is set on any rank."""
        return any(self.all_values(int(flag)))

    def on_first(self, work: Callable[[], T]) -> T:
        """Run `work` on rank 0 and return its result on every rank; an error is raised on all."""
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


ALONE = Ranks()


@contextmanager
def join(device: torch.device, timeout: float = 1800.0) -> Iterator[Ranks]:
    """The ranks of the torchrun this process was started by; `ALONE` where it was not.

    A process group that exists already is used, and left as it is. Otherwise one is made, gloo for
    tensors on the CPU and nccl for CUDA, and destroyed at the end. A rank waits `timeout` seconds
    for one that hangs; one that dies is noticed at once.
    """
    made = _started_by_torchrun()
    if distributed.is_available() and distributed.is_initialized():
        made = False
    elif not made:
        yield ALONE
        return
    if str(device) not in ("cpu", "cuda"):
        raise InputError("train.device", repr(str(device)), "cpu or cuda for several ranks")
    if device.type == "cuda":  # each rank of a machine its own
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if made:
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        distributed.init_process_group(backend, timeout=timedelta(seconds=timeout))
    try:
        yield Ranks(distributed.get_rank(), distributed.get_world_size())
        # A rank that leaves while another still talks to it aborts the other.
        with suppress(RuntimeError):  # of a rank that was lost: its own process says so
            distributed.barrier()
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
    """Around a collective operation: report its failure as the loss of another rank."""
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


# Rows of all ranks on every rank, with gradients: mining and losses see the whole batch.


def gather(
    x: Tensor, ranks: Ranks = ALONE, *, counts: Sequence[int] | None = None, adjoint: str = "sum"
) -> Tensor:
    """The rows of all ranks in order of rank, `[Σ counts, ...]`, the same on each.

    Shares may differ in length; pass `counts` if they are known, to save a message.

    `adjoint` says what goes back to a rank's rows. `"sum"`: the gradients that all ranks have for
    them, added up: right whatever the ranks do with the rows, and what
    `DistributedDataParallel`, which averages, needs where each rank computes the same loss of the
    whole. `"own"`: this rank's gradient for them alone: the same thing, without any traffic, where
    every rank computes the same loss and parameter gradients are added up (`sum_gradients`).

    >>> gather(torch.tensor([[1.0], [2.0]])).tolist()
    [[1.0], [2.0]]
    """
    check_choice("adjoint", adjoint, ("sum", "own"))
    if ranks.size == 1:
        return x
    if counts is None:
        counts = ranks.all_values(len(x))
    return _Gather.apply(x, list(counts), ranks, adjoint)  # type: ignore[no-any-return,no-untyped-call]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, counts: list[int], ranks: Ranks, adjoint: str) -> Tensor:
        start = sum(counts[: ranks.rank])
        ctx.own, ctx.ranks, ctx.adjoint = slice(start, start + len(x)), ranks, adjoint
        # Shares are padded to the longest: not every backend supports unequal lengths.
        padded = torch.cat([x.detach(), x.new_zeros(max(counts) - len(x), *x.shape[1:])])
        parts = [torch.empty_like(padded) for _ in counts]
        with together(ranks):
            distributed.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        if ctx.adjoint == "sum":
            gradient = gradient.contiguous().clone()
            with together(ctx.ranks):
                distributed.all_reduce(gradient)
        return gradient[ctx.own], None, None, None


# Gradients of all ranks made one, in a few large messages, after the backward pass.

_MESSAGE = 1 << 23  # elements: 32 MB of float32


def sum_gradients(parameters: Iterable[nn.Parameter], ranks: Ranks = ALONE) -> None:
    """Replace each gradient by its sum over the ranks.

    Ranks must agree on which parameters have a gradient, as they do when they run one network.

    >>> weight = nn.Parameter(torch.zeros(2))
    >>> weight.grad = torch.ones(2)
    >>> sum_gradients([weight])
    >>> weight.grad
    tensor([1., 1.])
    """
    _exchange(parameters, ranks, distributed.all_reduce)


def share_gradients(parameters: Iterable[nn.Parameter], ranks: Ranks = ALONE) -> None:
    """Replace each gradient by rank 0's.

    For parameters of a loss of the whole batch (proxies, β), every rank computes the gradient
    itself. On a GPU the results may differ by rounding, and must not drift apart.
    """
    _exchange(parameters, ranks, partial(distributed.broadcast, src=0))


def _exchange(
    parameters: Iterable[nn.Parameter], ranks: Ranks, collective: Callable[[Tensor], object]
) -> None:
    gradients = [p.grad for p in parameters if p.grad is not None] if ranks.size > 1 else []
    for dtype in dict.fromkeys(gradient.dtype for gradient in gradients):
        alike = [gradient for gradient in gradients if gradient.dtype == dtype]
        flat = torch.cat([gradient.reshape(-1) for gradient in alike])
        with together(ranks):
            for message in torch.split(flat, _MESSAGE):
                collective(message)
        parts = torch.split(flat, [gradient.numel() for gradient in alike])
        for gradient, values in zip(alike, parts, strict=True):
            gradient.copy_(values.view_as(gradient))


# Batch normalisation by the statistics of the whole batch, which lies on several ranks.

_PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class SharedBatchNorm(_BatchNorm):
    """`nn.BatchNorm` whose mean and variance are those of all ranks' samples, gradients included.

    Works on the CPU and on CUDA alike (`nn.SyncBatchNorm` needs CUDA), with shares of any length.
    One exchange of 2·C + 1 numbers forward, and one backward.
    """

    ranks: Ranks = ALONE

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept any number of dimensions: it replaces 1-, 2- and 3-dimensional layers."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalise by the batch while training, by the running statistics otherwise."""
        if not self.training or self.ranks.size == 1:
            return super().forward(input)
        x = input.float()
        spread, own = torch.var_mean(x, [d for d in range(x.ndim) if d != 1], correction=0)
        count = own.new_full((1,), x.numel() / len(own))
        sums = torch.cat([own, spread * count, count])[None]
        every = gather(sums, self.ranks, counts=[1] * self.ranks.size)
        means, spreads, counts = torch.split(every, [len(own), len(own), 1], dim=1)
        # Sums of squares about the common mean, from those about each rank's own (Chan et al.).
        total = counts.sum()
        mean = (means * counts).sum(0) / total
        squares = (spreads + counts * (means - mean).square()).sum(0)
        if self.running_mean is not None and self.running_var is not None:
            assert self.num_batches_tracked is not None  # kept where the others are
            self.num_batches_tracked.add_(1)
            seen = float(self.num_batches_tracked)
            factor = 1.0 / seen if self.momentum is None else self.momentum
            variance = squares.detach() / (total.detach() - 1).clamp(min=1)
            self.running_mean.lerp_(mean.detach().to(self.running_mean), factor)
            self.running_var.lerp_(variance.to(self.running_var), factor)
        scale = torch.rsqrt(squares / total + self.eps)
        if self.affine:
            scale = scale * self.weight
        shift = (self.bias if self.affine else 0.0) - mean * scale
        shape = [1, -1] + [1] * (x.ndim - 2)
        return torch.addcmul(shift.view(shape), x, scale.view(shape)).to(input.dtype)


def synchronise_batch_norm(module: nn.Module, ranks: Ranks = ALONE) -> nn.Module:
    """Make every batch-norm layer of `module` use the whole batch, in place; the state is kept.

    `module` is in training mode; frozen layers, which are not, stay as they are.

    >>> net = synchronise_batch_norm(nn.Sequential(nn.BatchNorm1d(2)), Ranks(0, 2))
    >>> type(net[0]).__name__, sorted(net.state_dict())[:2]
    ('SharedBatchNorm', ['0.bias', '0.num_batches_tracked'])
    """
    if ranks.size == 1:
        return module
    for layer in module.modules():
        if not isinstance(layer, _BatchNorm) or not layer.training:
            continue
        if type(layer) not in _PLAIN:
            raise InputError(
                "model.backbone",
                f"a network with {type(layer).__name__} layers on several ranks",
                "one whose batch norm is torch's own, or model.freeze_bn = true",
            )
        layer.__class__ = SharedBatchNorm
        cast(SharedBatchNorm, layer).ranks = ranks
    return module
