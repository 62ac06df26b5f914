"""Triplets that were chosen: value and gradient from their own pairs, by differences."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from uncollapse._base.extras import kernels
from uncollapse.distances.frame import Frame, on_host
from uncollapse.distances.pairwise import pairwise_distances
from uncollapse.mining.tuples import Triplets

__all__ = ["mined_triplets"]

_COMPILED_FROM = 128  # rows from which loading the compiled kernels is worth it


def mined_triplets(
    frame: Frame, triplets: Triplets, margin: float, *, soft: bool, reduction: str
) -> tuple[Tensor, Tensor]:
    """Loss of the triplets given and its gradient by `frame.unit` times the frame's rows.

    O(T·d), or O(N²) where T is larger than that.
    """
    rows = frame.wide
    gradient = torch.zeros_like(rows)
    if len(triplets.anchor) == 0:
        return rows.new_zeros(()), gradient
    if 2 * len(triplets.anchor) > len(rows) ** 2:
        return _many(frame, triplets, margin, soft, reduction)
    compiled = kernels() if on_host(rows) and len(rows) >= _COMPILED_FROM else None
    if compiled is not None:
        value = compiled.triplet_charge(
            rows.numpy(),
            *(index.numpy() for index in triplets),
            frame.unit,
            margin,
            soft,
            reduction == "nonzero",
            reduction == "max",
            gradient.numpy(),
        )
        return rows.new_tensor(value), gradient
    anchor, positive, negative = triplets
    middle = rows[anchor]
    pull, push = middle - rows[positive], middle - rows[negative]
    near, far = (torch.linalg.vector_norm(gap, dim=1) for gap in (pull, push))
    value, weight = _reduced((near - far) * frame.unit + margin, soft, reduction)
    pull *= _over(weight, near)[:, None]
    push *= _over(weight, far)[:, None]
    gradient.index_add_(0, positive, pull, alpha=-1).index_add_(0, negative, push)
    return value, gradient.index_add_(0, anchor, pull.sub_(push))


def _many(
    frame: Frame, triplets: Triplets, margin: float, soft: bool, reduction: str
) -> tuple[Tensor, Tensor]:
    """The same by way of all N² distances, for more triplets than there are pairs."""
    anchor, positive, negative = triplets
    distance = pairwise_distances(frame.wide)
    near, far = distance[anchor, positive], distance[anchor, negative]
    value, weight = _reduced((near - far) * frame.unit + margin, soft, reduction)
    slope = torch.zeros_like(distance)
    slope.index_put_((anchor, positive), _over(weight, near), accumulate=True)
    slope.index_put_((anchor, negative), -_over(weight, far), accumulate=True)
    slope += slope.T.clone()
    return value, slope.sum(1, keepdim=True) * frame.wide - slope @ frame.wide


def _reduced(excess: Tensor, soft: bool, reduction: str) -> tuple[Tensor, Tensor]:
    """Reduced loss of d_ap - d_an + margin of each triplet, and its derivative."""
    losses = functional.softplus(excess) if soft else excess.clamp(min=0.0)
    slope = excess.sigmoid() if soft else (excess > 0).to(excess.dtype)
    if reduction == "max":
        worst = losses.argmax(dim=0, keepdim=True)
        only = torch.zeros_like(slope).index_copy_(0, worst, slope[worst])
        return losses[worst][0], only
    if reduction == "nonzero":
        tuples = (losses > 0).sum().clamp(min=1)
        return losses.sum() / tuples, slope / tuples
    return losses.mean(), slope / len(losses)


def _over(weight: Tensor, distance: Tensor) -> Tensor:
    """weight / distance, 0 at distance 0: the subgradient taken there."""
    return torch.where(distance > 0, weight / distance, torch.zeros_like(weight))
