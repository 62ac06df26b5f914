"""Regularisers: losses of a batch's rows as a whole, to add to any other loss."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from uncollapse._base.check import InputError
from uncollapse.distances.batch import Batch
from uncollapse.losses.base import Elements, Loss, graph_rows
from uncollapse.mining.tuples import Pairs, Triplets

__all__ = ["Regulariser"]


class Regulariser(Loss):
    """What the shape of a batch costs, whoever its rows are.

    Called as any loss is, `regulariser(embeddings)` or `regulariser(embeddings, labels, ...)`:
    labels, tuples and references are checked and then left aside, and there is no miner to have.
    It is of the batch's own rows: on several ranks, of the whole batch, or of each rank's share
    where those are mined apart. A subclass gives `cost`.
    """

    labels_used = False

    @abstractmethod
    def cost(self, rows: Tensor) -> Tensor:
        """The cost of `[N, dim]` rows in float64, on the graph."""

    def value(self, batch: Batch, tuples: Triplets | Pairs | None) -> Tensor:
        """The loss of a checked batch."""
        rows = graph_rows(batch, self.normalize)[: batch.count]
        return self.cost(rows).to(batch.rows.dtype)

    def listed(self, batch: Batch, tuples: Triplets | Pairs | None) -> Elements:
        """Refused: it is of no tuple."""
        kind = type(self).__name__
        raise InputError("loss", f"{kind}, to list the tuples of", "a loss of tuples")
