"""The pairs a loss of pairs charges, and their distances and cosines, on the graph in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike
from uncollapse.distances import paired_distances, pairwise_distances
from uncollapse.losses._elements import IndicesTuple, MinerLike
from uncollapse.mining import Pairs, as_pairs

__all__ = ["chosen_pairs", "cosines", "pair_distances", "pair_mask"]


def chosen_pairs(
    y: Tensor,
    labels: ArrayLike,
    indices_tuple: IndicesTuple | None,
    miner: MinerLike | None,
    *,
    unique: bool = False,
) -> Pairs:
    """Pairs of the tuple given, else of the miner, else all of the batch; on the rows' device."""
    if indices_tuple is None and miner is not None:
        indices_tuple = miner(y.detach(), labels)
    pairs = as_pairs(indices_tuple, labels, unique=unique)
    return Pairs(*(index.to(y.device) for index in pairs))


def pair_distances(y: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Distances of rows i to rows j: direct, or out of the N × N matrix if that is smaller."""
    if len(i) == 0:
        return y[i].sum(1)
    if len(i) * y.shape[1] > len(y) ** 2:
        return pairwise_distances(y)[i, j]
    return paired_distances(y[i], y[j])


def cosines(y: Tensor) -> Tensor:
    """Cosines of the unit rows of `y`, as 1 - d²/2: exact where the rows nearly coincide."""
    return 1.0 - 0.5 * pairwise_distances(y, squared=True)


def pair_mask(n: int, i: Tensor, j: Tensor) -> Tensor:
    """`[n, n]`: which pairs are named."""
    mask = torch.zeros(n, n, dtype=torch.bool, device=i.device)
    mask[i, j] = True
    return mask
