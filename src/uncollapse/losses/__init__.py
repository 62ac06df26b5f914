"""Losses: what a batch of embeddings costs (HNM §2.1, EPS §3), exact at the edge of collapse.

Each is a `Loss`, called `loss(embeddings, labels)`. A `TupleLoss`, of pairs, triplets or samples,
takes a `miner`, or `loss(embeddings, labels, tuples)`. Regularisers are losses of the batch as a
whole, to add to another: `MultipleLosses`.
"""

from uncollapse.losses.base import Elements, Loss, TupleLoss
from uncollapse.losses.circle import CircleLoss
from uncollapse.losses.columns import ColumnLoss, Columns, join_columns, split_columns
from uncollapse.losses.combined import IdentityLoss, MultipleLosses, TrimmedLoss, trim
from uncollapse.losses.contrastive import ContrastiveLoss
from uncollapse.losses.face_margins import ArcFaceLoss, CosFaceLoss
from uncollapse.losses.margin import MarginLoss
from uncollapse.losses.memory import CrossBatchMemory
from uncollapse.losses.multi_similarity import MultiSimilarityLoss
from uncollapse.losses.n_pair import NPairLoss
from uncollapse.losses.nt_xent import MultipleNegativesRankingLoss, NTXentLoss
from uncollapse.losses.pml import as_pml
from uncollapse.losses.proxy_anchor import ProxyAnchorLoss
from uncollapse.losses.proxy_nca import ProxyNCALoss
from uncollapse.losses.regularizers import CodingRateLoss, SIGRegLoss, VarianceCovarianceLoss
from uncollapse.losses.smooth_ap import SmoothAPLoss
from uncollapse.losses.soft_triple import SoftTripleLoss
from uncollapse.losses.spread import SpreadLoss
from uncollapse.losses.sup_con import SupConLoss
from uncollapse.losses.triplet import TripletLoss

__all__ = [
    "ArcFaceLoss",
    "CircleLoss",
    "CodingRateLoss",
    "ColumnLoss",
    "Columns",
    "ContrastiveLoss",
    "CosFaceLoss",
    "CrossBatchMemory",
    "Elements",
    "IdentityLoss",
    "Loss",
    "MarginLoss",
    "MultiSimilarityLoss",
    "MultipleLosses",
    "MultipleNegativesRankingLoss",
    "NPairLoss",
    "NTXentLoss",
    "ProxyAnchorLoss",
    "ProxyNCALoss",
    "SIGRegLoss",
    "SmoothAPLoss",
    "SoftTripleLoss",
    "SpreadLoss",
    "SupConLoss",
    "TrimmedLoss",
    "TripletLoss",
    "TupleLoss",
    "VarianceCovarianceLoss",
    "as_pml",
    "join_columns",
    "split_columns",
    "trim",
]
