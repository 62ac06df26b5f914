"""A loss tuple by tuple, before it is reduced: what trimming, and every other selection, needs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor, nn

from uncollapse._base.arrays import ArrayLike

__all__ = [
    "Elements",
    "IndicesTuple",
    "MinerLike",
    "TupleLoss",
    "mean_or_zero",
    "nonzero_mean",
]

IndicesTuple = Sequence[Tensor]  # our Triplets, or what a PML miner gives
MinerLike = Callable[[Tensor, ArrayLike], IndicesTuple]


class Elements(NamedTuple):
    """One entry a tuple of the batch; which tuples there are is the loss's own (see its docs).

    `loss`: what the tuple is charged, on the graph. `pull`: how hard its positive part pulls, off
    the graph (a distance, or minus a similarity; the larger, the harder the positive), -inf where
    the tuple has no positive part. `anchor`: the row it belongs to.
    """

    loss: Tensor
    pull: Tensor
    anchor: Tensor

    def take(self, index: Tensor) -> Elements:
        """Some of the tuples, by mask or index."""
        return Elements(self.loss[index], self.pull[index], self.anchor[index])


class TupleLoss(nn.Module, ABC):
    """A loss that is a reduction of losses of tuples; `TrimmedLoss` wraps any of them."""

    @abstractmethod
    def elements(
        self, embeddings: Tensor, labels: ArrayLike, indices_tuple: IndicesTuple | None = None
    ) -> Elements:
        """The losses of the batch's tuples."""

    @abstractmethod
    def reduce(self, elements: Elements) -> Tensor:
        """The loss of the batch, from the losses of its tuples."""

    def forward(
        self, embeddings: Tensor, labels: ArrayLike, indices_tuple: IndicesTuple | None = None
    ) -> Tensor:
        """Loss of a batch; `indices_tuple` (ours or PML's) takes the place of the miner."""
        return self.reduce(self.elements(embeddings, labels, indices_tuple))


def mean_or_zero(loss: Tensor) -> Tensor:
    """Mean, or a zero on the graph when there is nothing."""
    return loss.sum() / max(len(loss), 1)


def nonzero_mean(loss: Tensor) -> Tensor:
    """Mean of the entries above 0, or a zero on the graph when there are none."""
    return loss.sum() / max(int((loss.detach() > 0).sum()), 1)
