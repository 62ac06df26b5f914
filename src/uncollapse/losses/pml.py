"""Losses and miners as classes of pytorch-metric-learning (PML), for wrappers that ask for one."""

import functools
from typing import Any

from torch import Tensor, nn

from uncollapse._base.arrays import ArrayLike
from uncollapse._base.check import InputError
from uncollapse._base.extras import import_extra
from uncollapse.losses.base import Loss, LossInfo, innermost
from uncollapse.mining.miner import Miner
from uncollapse.mining.tuples import Triplets, Tuples

__all__ = ["as_pml"]


def as_pml(module: Loss | Miner) -> nn.Module:
    """The same loss or miner as an instance of PML's base class, under PML's name for it.

    Most of PML takes any module and needs none of this. `DistributedLossWrapper` and
    `DistributedMinerWrapper` ask for the class, `CrossBatchMemory` and `SelfSupervisedLoss` for the
    name, which for `TripletLoss` is another one there. The module given stays the one that is
    trained, saved and changed: it is `.wrapped`. Needs pytorch-metric-learning.

    >>> from uncollapse.losses.triplet import TripletLoss
    >>> as_pml(TripletLoss(margin=0.2, miner=Miner("easy", "hard"))).wrapped.margin
    0.2
    """
    if not isinstance(module, Loss | Miner):
        raise InputError("module", type(module).__name__, "a loss or a miner of uncollapse")
    made = (_miner_class() if isinstance(module, Miner) else _loss_class(_pml_name(module)))()
    made.wrapped = module
    return made


def _pml_name(loss: Loss) -> str:
    kind = type(innermost(loss))
    info: LossInfo | None = getattr(kind, "info", None)
    return info.pml if info is not None and info.pml is not None else kind.__name__


@functools.cache
def _loss_class(name: str) -> type[nn.Module]:
    losses = import_extra("pytorch_metric_learning.losses", extra="pml")

    def forward(
        self: Any,
        embeddings: Tensor,
        labels: ArrayLike | None = None,
        indices_tuple: Tuples | None = None,
        ref_emb: Tensor | None = None,
        ref_labels: ArrayLike | None = None,
    ) -> Tensor:
        loss: Tensor = self.wrapped(embeddings, labels, indices_tuple, ref_emb, ref_labels)
        return loss

    return _class(name, losses.BaseMetricLossFunction, forward)


@functools.cache
def _miner_class() -> type[nn.Module]:
    miners = import_extra("pytorch_metric_learning.miners", extra="pml")

    def forward(
        self: Any,
        embeddings: Tensor,
        labels: ArrayLike,
        ref_emb: Tensor | None = None,
        ref_labels: ArrayLike | None = None,
    ) -> Triplets:
        self.reset_stats()
        found: Triplets = self.wrapped(embeddings, labels, ref_emb, ref_labels)
        self.output_assertion(found)
        return found

    return _class("Miner", miners.BaseMiner, forward)


def _class(name: str, base: type[nn.Module], forward: Any) -> type[nn.Module]:
    """The class made on the spot: a copy or a pickle is made anew of what is wrapped."""
    return type(name, (base,), {"forward": forward, "__reduce__": _again})


def _again(self: Any) -> tuple[Any, tuple[nn.Module]]:
    return as_pml, (self.wrapped,)
