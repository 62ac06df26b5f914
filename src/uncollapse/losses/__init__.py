"""Losses: what a batch of embeddings is charged (HNM §2.1, EPS §3), exact at the edge of collapse.

Each is a pure function and an `nn.Module` around it, called `loss(embeddings, labels)` or
`loss(embeddings, labels, indices_tuple)`; each takes a `miner`.
"""

from uncollapse.losses._elements import Elements, TupleLoss
from uncollapse.losses.contrastive import ContrastiveLoss, contrastive_loss
from uncollapse.losses.margin import MarginLoss, margin_loss
from uncollapse.losses.multi_similarity import MultiSimilarityLoss, multi_similarity_loss
from uncollapse.losses.n_pair import NPairLoss, n_pair_loss
from uncollapse.losses.proxy_nca import ProxyNCALoss, proxy_nca_loss
from uncollapse.losses.sup_con import SupConLoss, sup_con_loss
from uncollapse.losses.trimmed import TrimmedLoss, trim
from uncollapse.losses.triplet import TripletLoss, triplet_loss

__all__ = [
    "ContrastiveLoss",
    "Elements",
    "MarginLoss",
    "MultiSimilarityLoss",
    "NPairLoss",
    "ProxyNCALoss",
    "SupConLoss",
    "TrimmedLoss",
    "TripletLoss",
    "TupleLoss",
    "contrastive_loss",
    "margin_loss",
    "multi_similarity_loss",
    "n_pair_loss",
    "proxy_nca_loss",
    "sup_con_loss",
    "trim",
    "triplet_loss",
]
