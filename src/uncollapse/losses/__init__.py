"""Losses: what a batch of embeddings costs (HNM §2.1, EPS §3), exact at the edge of collapse.

Each is a `Loss`, called `loss(embeddings, labels)`. A `TupleLoss`, of pairs, triplets or samples,
takes a `miner`, or `loss(embeddings, labels, tuples)`. Regularisers are losses of the batch as a
whole, to add to another: `MultipleLosses`.
"""

from uncollapse.losses.base import Elements, Loss, TupleLoss
from uncollapse.losses.columns import ColumnLoss, join_columns
from uncollapse.losses.combined import IdentityLoss, MultipleLosses, TrimmedLoss, trim
from uncollapse.losses.memory import CrossBatchMemory
from uncollapse.losses.nt_xent import MultipleNegativesRankingLoss
from uncollapse.losses.pml import as_pml
from uncollapse.losses.registry import *  # noqa: F403
from uncollapse.losses.registry import LOSSES
from uncollapse.losses.regularizers import CodingRateLoss, SIGRegLoss, VarianceCovarianceLoss

__all__ = [
    "CodingRateLoss",
    "ColumnLoss",
    "CrossBatchMemory",
    "Elements",
    "IdentityLoss",
    "Loss",
    "MultipleLosses",
    "MultipleNegativesRankingLoss",
    "SIGRegLoss",
    "TrimmedLoss",
    "TupleLoss",
    "VarianceCovarianceLoss",
    "as_pml",
    "join_columns",
    "trim",
]
__all__ += [kind.__name__ for kind in LOSSES.values()]
