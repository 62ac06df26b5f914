"""Triplets that were chosen: value and gradient from their own pairs, by direct differences."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from uncollapse.distances import pairwise_distances
from uncollapse.losses._all_triplets import Charge
from uncollapse.losses._engine import compiled
from uncollapse.losses._frame import Frame
from uncollapse.mining import Triplets

__all__ = ["mined_triplets"]


def mined_triplets(
    frame: Frame,
    triplets: Triplets,
    margin: float,
    *,
    soft: bool,
    reduction: str,
    engine: str = "auto",
) -> Charge:
    """Loss of the triplets given and its gradient; O(T·d), or O(N²) where T is larger than that."""
    if len(triplets.anchor) == 0:
        return Charge(0.0, torch.zeros_like(frame.rows))
    if 2 * len(triplets.anchor) > len(frame.rows) ** 2:
        return _many(frame, triplets, margin, soft, reduction)
    gradient = torch.zeros_like(frame.rows)
    kernels = compiled(frame.rows, engine)
    if kernels is not None:
        value = kernels.triplet_charge(
            frame.rows.numpy(),
            *(index.numpy() for index in triplets),
            frame.unit,
            margin,
            soft,
            reduction == "nonzero",
            reduction == "max",
            gradient.numpy(),
        )
        return Charge(value, gradient)
    anchor, positive, negative = triplets
    middle = frame.rows[anchor]
    pull, push = middle - frame.rows[positive], middle - frame.rows[negative]
    near, far = (torch.linalg.vector_norm(gap, dim=1) for gap in (pull, push))
    value, weight = _reduce((near - far) * frame.unit + margin, soft, reduction)
    pull *= _over(weight, near)[:, None]
    push *= _over(weight, far)[:, None]
    gradient.index_add_(0, positive, pull, alpha=-1).index_add_(0, negative, push)
    return Charge(value, gradient.index_add_(0, anchor, pull.sub_(push)))


def _many(frame: Frame, triplets: Triplets, margin: float, soft: bool, reduction: str) -> Charge:
    """The same by way of all N² distances, for more triplets than there are pairs."""
    anchor, positive, negative = triplets
    distance = pairwise_distances(frame.rows)
    near, far = distance[anchor, positive], distance[anchor, negative]
    value, weight = _reduce((near - far) * frame.unit + margin, soft, reduction)
    slope = torch.zeros_like(distance)
    slope.index_put_((anchor, positive), _over(weight, near), accumulate=True)
    slope.index_put_((anchor, negative), -_over(weight, far), accumulate=True)
    slope += slope.T.clone()
    return Charge(value, slope.sum(1, keepdim=True) * frame.rows - slope @ frame.rows)


def _reduce(excess: Tensor, soft: bool, reduction: str) -> tuple[float, Tensor]:
    """Reduced loss of d_ap - d_an + margin a triplet, and its derivative."""
    losses = functional.softplus(excess) if soft else excess.clamp(min=0.0)
    slope = excess.sigmoid() if soft else (excess > 0).to(excess.dtype)
    if reduction == "max":
        worst = int(losses.argmax())
        only = torch.zeros_like(slope)
        only[worst] = slope[worst]
        return float(losses[worst]), only
    tuples = int((losses > 0).sum()) if reduction == "nonzero" else len(losses)
    return float(losses.sum()) / max(tuples, 1), slope / max(tuples, 1)


def _over(weight: Tensor, distance: Tensor) -> Tensor:
    """weight / distance, 0 at distance 0: the subgradient taken there."""
    return torch.where(distance > 0, weight / distance, torch.zeros_like(weight))
