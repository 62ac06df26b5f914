"""Losses and miners as classes of pytorch-metric-learning (PML), for wrappers that ask for one."""

import functools
from typing import Any

from torch import nn

from uncollapse._base.check import InputError
from uncollapse._base.extras import import_extra
from uncollapse.losses.base import Loss, innermost
from uncollapse.mining.miner import Miner


def as_pml(module: Loss | Miner) -> nn.Module:
    """The same loss or miner as an instance of PML's base class, under PML's name for it.

    Most of PML takes any module and needs none of this. `DistributedLossWrapper` and
    `DistributedMinerWrapper` ask for the class, `CrossBatchMemory` and `SelfSupervisedLoss` for the
    name, which for `TripletLoss` is another one there. The module itself stays the one that is
    trained, saved and changed, as `.wrapped`. Needs pytorch-metric-learning.

    >>> from uncollapse.losses.triplet import TripletLoss
    >>> as_pml(TripletLoss(margin=0.2, miner=Miner("easy", "hard"))).wrapped.margin
    0.2
    """
    if not isinstance(module, Loss | Miner):
        raise InputError("module", type(module).__name__, "a loss or a miner of uncollapse")
    kind: Any = type(innermost(module))
    name = getattr(getattr(kind, "info", None), "pml", None) or kind.__name__
    made = _pml_class(name, isinstance(module, Miner))()
    made.wrapped = module
    return made


@functools.cache
def _pml_class(name: str, miner: bool) -> type[nn.Module]:
    """A subclass of PML's base class; copies and pickles are rebuilt from what is wrapped."""
    if miner:
        base = import_extra("pytorch_metric_learning.miners", extra="pml").BaseMiner
    else:
        base = import_extra("pytorch_metric_learning.losses", extra="pml").BaseMetricLossFunction

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = self.wrapped(*args, **kwargs)
        if miner:
            self.reset_stats()
            self.output_assertion(result)
        return result

    def again(self: Any) -> tuple[Any, tuple[nn.Module]]:
        return as_pml, (self.wrapped,)

    return type(name, (base,), {"forward": forward, "__reduce__": again})
