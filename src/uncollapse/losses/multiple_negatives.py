"""Multiple-negatives ranking loss: Henderson et al. 2017 (5), of pairs in columns."""

from __future__ import annotations

import math
from typing import ClassVar

from torch import nn

from uncollapse.distances.batch import Batch
from uncollapse.losses.base import Elements, Loss, cosines
from uncollapse.losses.nt_xent import info_nce
from uncollapse.mining.tuples import Pairs, Triplets

__all__ = ["MultipleNegativesRankingLoss"]


class MultipleNegativesRankingLoss(Loss):
    """-log softmax of an anchor's positive among all positives and negatives of the batch.

    For row i of the anchors and positives: -log(exp(c s_ii) / Σ_j exp(c s_ij)), with cosines s, c
    `scale`, and j over the positives and all columns of negatives; mean over the rows. The name and
    the defaults are sentence-transformers', and so are value and gradient.

        loss(**Columns.of(a, p, n1, n2)._asdict())      # the anchors, and the rest as references
        ColumnLoss(loss)(*join_columns(a, p, n1, n2))   # the same, of columns

    Needs two pairs, or a column of negatives. Pairs that are copies of each other count as each
    other's negatives: `BatchSamplers.NO_DUPLICATES` there keeps them out of a batch.

    Siblings: `NTXentLoss` with temperature 1 / scale is the same loss, also of labels (which need
    no columns and say which pairs are no negatives); `symmetric` is what this one adds.

    Collapse: when all embeddings coincide the loss is log(number of candidates) and the gradient 0;
    around that point it spreads the pairs, weakly. Its drift depends on the pairs: on the sphere,
    of random columns [32, 16], -0.0006 where positives lie next to their anchors, but +0.30 where
    they lie anywhere: pairs that mean nothing to the network are pulled together.

    Args:
        scale: c, the inverse of a temperature; 20 there.
        symmetric: mean of that and of the anchor's among all anchors, seen from its positive
            (there: both directions, each with its softmax).
        miner: chooses the pairs.

    >>> import torch
    >>> from uncollapse.losses.columns import ColumnLoss, join_columns
    >>> loss = ColumnLoss(MultipleNegativesRankingLoss(scale=1.0))
    >>> loss(*join_columns(torch.eye(3), torch.eye(3)))  # log(1 + 2/e)
    tensor(0.5514)
    """

    numbers: ClassVar = {"scale": (1e-6, math.inf)}

    def __init__(
        self, *, scale: float = 20.0, symmetric: bool = False, miner: nn.Module | None = None
    ) -> None:
        super().__init__(miner=miner, normalize=True)
        self.scale, self.symmetric = scale, symmetric

    def listed(self, batch: Batch, tuples: Triplets | Pairs | None) -> Elements:
        """One entry per pair of anchor and positive; `pull` is minus their cosine."""
        anchor, positive, negative = self.pair_masks(batch, tuples)
        cosine = cosines(batch)
        loss = info_nce(self.scale * cosine, anchor, positive, negative)  # Henderson et al. (5)
        if self.symmetric:
            back = info_nce(self.scale * cosine.T, positive, anchor, negative.T)
            loss = (loss + back) / 2
        pull = -cosine[anchor, positive].detach()
        return Elements(loss.to(batch.rows.dtype), pull, anchor)
