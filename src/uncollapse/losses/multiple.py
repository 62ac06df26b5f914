"""Several losses of the same embeddings, added up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from uncollapse._base.check import InputError, check_number
from uncollapse.distances.batch import Batch
from uncollapse.losses.base import Elements, Loss, Wrapper
from uncollapse.mining.tuples import Pairs, Triplets

__all__ = ["MultipleLosses"]


class MultipleLosses(Wrapper):
    """Σ w_i L_i: any of the other losses, with a weight each.

    Each is called by itself, with its own miner, normalisation and parameters; tuples and
    references go to all of them. Settings of the sum are those of the **first**, to read and to
    set: it is the loss whose mining a guard changes, so put the one that is mined first.

    Siblings: `IdentityLoss` adds the cross-entropy of a learned classifier to one loss. PML's
    `MultipleLosses` is the same sum, with the miners beside it.

    Collapse: gradients add up, and so do drifts: the sum pulls to a point where Σ w_i drift_i is
    positive. What it costs when all embeddings coincide is the sum of what each does.

    Args:
        losses: two or more losses.
        weights: one each, at least 0; 1 by default.

    >>> import torch
    >>> from uncollapse.losses import ContrastiveLoss, TripletLoss
    >>> both = [TripletLoss(margin=0.2), ContrastiveLoss(margin=1.0)]
    >>> loss = MultipleLosses(both, weights=[1, 0.5])
    >>> loss(torch.zeros(4, 2), [0, 0, 1, 1])  # 0.2 + 0.5 · 1
    tensor(0.7000)
    >>> loss.margin
    0.2
    """

    own: ClassVar = (*Wrapper.own, "others", "weights")

    def __init__(self, losses: Sequence[Loss], *, weights: Sequence[float] | None = None) -> None:
        given = list(losses)
        if len(given) < 2:
            raise InputError("losses", f"{len(given)}", "two losses or more")
        odd = next((one for one in given if not isinstance(one, Loss)), None)
        if odd is not None:
            raise InputError("losses", type(odd).__name__, "losses of uncollapse.losses")
        super().__init__(given[0])
        some = [1.0] * len(given) if weights is None else list(weights)
        if len(some) != len(given):
            raise InputError("weights", f"{len(some)}", f"{len(given)}, one for each loss")
        self.others = nn.ModuleList(given[1:])
        self.weights = tuple(check_number("weights", w, 0.0, math.inf) for w in some)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """The sum; arguments as of any loss."""
        parts = [loss(*args, **kwargs) for loss in (self.inner, *self.others)]
        total: Tensor = self.weights[0] * parts[0]
        for weight, part in zip(self.weights[1:], parts[1:], strict=True):
            total = total + weight * part
        return total

    def listed(self, batch: Batch, tuples: Triplets | Pairs | None) -> Elements:
        """Refused: each loss has tuples of its own."""
        raise InputError("loss", "MultipleLosses, to list the tuples of", "one of its losses")
