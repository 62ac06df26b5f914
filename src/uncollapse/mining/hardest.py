"""The one triplet the hard-mined loss is made of: HNM Theorem 3.3."""

from __future__ import annotations

import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike, points
from uncollapse.geometry.triplet_separation import separation
from uncollapse.mining.tuples import Triplets

__all__ = ["hardest_triplet"]


def hardest_triplet(embeddings: ArrayLike, labels: ArrayLike) -> Triplets:
    """The triplet with the largest d_ap − d_an of all, as `Triplets` of one row.

    Its triplet loss with margin α is `geometry.hard_mined_loss` with that α: the supremum HNM's
    theorems are about, where batch-hard (`Miner("hard", "hard")`) has one triplet for each anchor
    and takes their mean. As in HNM (2a) the positive of a class with one member is that member.
    Needs two classes. Its drift is positive whenever the classes are not triplet-separated.

    >>> hardest_triplet(torch.tensor([[0.0], [1.0], [3.0]]), [0, 0, 1])
    Triplets(anchor=tensor([1]), positive=tensor([0]), negative=tensor([2]))
    """
    worst = separation(points(embeddings, "embeddings").detach(), labels)
    rows = (worst.anchor, worst.positive, worst.negative)
    device = embeddings.device if isinstance(embeddings, Tensor) else None
    return Triplets(*(torch.tensor([row], device=device) for row in rows))
