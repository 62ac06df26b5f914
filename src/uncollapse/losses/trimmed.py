"""Trimmed loss: Shen & Sanghavi 2019, as EPS compares it (appendix C)."""

from __future__ import annotations

import math
from typing import ClassVar

import torch

from uncollapse._base.check import check_choice, check_number
from uncollapse.distances.batch import Batch
from uncollapse.losses.base import Elements, Loss, Wrapper
from uncollapse.mining.tuples import Pairs, Triplets

__all__ = ["TrimmedLoss", "trim"]

_ON = ("all", "positives")


def trim(elements: Elements, fraction: float, on: str = "all") -> Elements:
    """The `fraction` of the tuples that are easiest, in their old order; see `TrimmedLoss`.

    >>> charged = Elements(torch.tensor([3.0, 1.0, 2.0, 9.0]), torch.tensor([5.0, 7.0, 6.0,
    ... -torch.inf]), torch.arange(4))
    >>> trim(charged, 0.5).loss, trim(charged, 0.5, on="positives").loss
    (tensor([1., 2.]), tensor([3., 9.]))
    """
    check_number("fraction", fraction, 0.0, 1.0)
    check_choice("on", on, _ON)
    if on == "all":
        key, trimmed = elements.loss.detach(), torch.ones_like(elements.pull, dtype=torch.bool)
    else:
        key, trimmed = elements.pull, elements.pull > -torch.inf
    candidates = trimmed.nonzero().flatten()
    kept = math.floor(fraction * len(candidates) + 1e-9)  # 0.7 · 10 is 7, not 6.999…
    order = key[candidates].argsort(stable=True)
    keep = ~trimmed
    keep[candidates[order[:kept]]] = True
    return elements.take(keep)


class TrimmedLoss(Wrapper):
    """Another loss, over the `fraction` of its tuples that are easiest at the moment.

    `on="all"` keeps the tuples with the smallest losses (Shen & Sanghavi, for noisy labels: what a
    model cannot fit is likely mislabelled). `on="positives"` ranks by the positive part alone, the
    distance or similarity to the positive, and keeps every tuple that has none (the negative pairs
    of `ContrastiveLoss` and `MarginLoss`): easy positives by a batch-wide quantile where
    `Miner("easy", ...)` takes each anchor's nearest.

    Needs what the inner loss needs. The tuples are the inner loss's `elements`: triplets for
    `TripletLoss`; pairs for `ContrastiveLoss`, `MarginLoss`, `SupConLoss`, `NPairLoss`; samples for
    `MultiSimilarityLoss`, `ProxyNCALoss`. They are listed: an unmined `TripletLoss` takes O(N²K)
    memory here, so give it a miner (EPS trims random triplets: `Miner("random", "random")`). The
    miner, and every other setting of the inner loss, is this one's too.

    EPS found trimming on all tuples of little use against class collapse, and trimming positives
    the point.

    Collapse: as the inner loss; ties are cut in the order of the tuples.

    Args:
        loss: any of the other losses.
        fraction: share of the tuples kept, in [0, 1], rounded down.
        on: which tuples are trimmed.

    >>> from uncollapse.losses.contrastive import ContrastiveLoss
    >>> loss = TrimmedLoss(ContrastiveLoss(), fraction=0.5, on="positives")
    >>> loss(torch.tensor([[0.0], [1.0], [5.0], [8.0]]), [0, 0, 1, 1])  # 1, and not 3
    tensor(1.)
    """

    own = (*Wrapper.own, "on", "fraction")
    words: ClassVar = {"on": _ON}
    numbers: ClassVar = {"fraction": (0.0, 1.0)}

    def __init__(self, loss: Loss, *, fraction: float, on: str = "all") -> None:
        super().__init__(loss)
        self.on, self.fraction = on, fraction

    def listed(self, batch: Batch, tuples: Triplets | Pairs | None) -> Elements:
        """Those of the inner loss that are kept."""
        return trim(self.inner.listed(batch, tuples), self.fraction, self.on)
