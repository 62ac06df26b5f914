"""Distances over one of the batch's own: what makes a loss indifferent to scale, and its gradient.

Over their mean, or, as Quaterion's triplet loss has it, over the mean distance of the hardest
negatives (qdrant/quaterion, `quaterion/loss/triplet_loss.py`, there with batch-hard mining alone).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from uncollapse.distances.batch import Batch
from uncollapse.distances.pairwise import known_distances
from uncollapse.losses._classwise import FAR, ByClass, cross_class, dot
from uncollapse.losses.base import pair_distances
from uncollapse.mining.miner import Miner

__all__ = [
    "FORMS",
    "HARDEST",
    "hardest_negative_mean",
    "mean_distance",
    "over_mean",
    "seen_by_miner",
    "through_mean",
]

HARDEST = "hardest-negative"
FORMS = ("mean", HARDEST)
_NEAREST = Miner("easy", "hard")  # each anchor once, with its hardest negative


def mean_distance(classes: ByClass) -> tuple[Tensor, Tensor]:
    """Mean distance between two of the frame's rows, and its gradient by them."""
    rows = classes.wide
    n = len(rows)
    total = rows.new_zeros(())

    def weigh(start: int, stop: int, distance: Tensor) -> Tensor:
        weight = (distance < FAR / 2).to(distance.dtype)
        total.add_(dot(weight, distance))
        return weight

    gradient = cross_class(classes, weigh)
    inside = classes.distances(rows.dtype)
    gradient += classes.gradient(torch.ones_like(inside), inside)
    total += torch.where(classes.real, inside, 0.0).sum()
    pairs = n * (n - 1)
    return total / pairs, classes.in_given_order(gradient.div_(pairs))


def seen_by_miner(batch: Batch) -> Batch:
    """The batch with distances over their mean, as the miner of a scale-free loss sees it."""
    if batch.frame.collapsed:
        return batch
    mean = _mean_to_candidates(batch, batch.frame.wide, 0.75)
    return replace(batch, frame=batch.frame.seen_as(1 / mean))


def hardest_negative_mean(batch: Batch, rows: Tensor) -> Tensor:
    """Mean over the anchors of the distance to their hardest negative, on the graph of `rows`.

    Anchors are the rows with a positive and a negative; 1 where there are none, or where every
    hardest negative coincides with its anchor.
    """
    if batch.classes.usable == 0:
        return rows.new_ones(())
    anchor, _, negative = _NEAREST.mine(batch)
    far = pair_distances(rows, anchor, negative + batch.offset, reach=batch.reach).mean()
    return torch.where(far == 0, torch.ones_like(far), far)


def over_mean(batch: Batch, rows: Tensor) -> Tensor:
    """The batch's rows over the mean distance, on the graph; unchanged if all are equal.

    The mean is over pairs of an anchor and a candidate that is not itself.
    """
    mean = _mean_to_candidates(batch, rows, batch.reach)
    return (rows - rows[0].detach()) / torch.where(mean == 0, torch.ones_like(mean), mean)


def _mean_to_candidates(batch: Batch, rows: Tensor, reach: float) -> Tensor:
    """`rows` are the batch's, in any coordinates, and `reach` their largest about their centre."""
    if not batch.offset:
        total, pairs = known_distances(rows, reach=reach).sum(), len(rows) * (len(rows) - 1)
    else:
        sides = rows[: batch.count], rows[batch.offset :]
        total = known_distances(*sides, reach=reach).sum()
        own = batch.known is not None and not batch.known.apart
        pairs = batch.count * (batch.candidates - int(own))
    return total / max(pairs, 1)


def through_mean(batch: Batch, gradient: Tensor, mean: Tensor, slope: Tensor) -> Tensor:
    """Gradient by the rows of a loss of r / μ(r): dL/dr = (G - <G, r>/μ ∇μ) / μ, rows = unit · r.

    By Euler's identity its drift <Z_c, ∇L> is 0: there is no pull towards, or away from, a point.
    """
    radial = (gradient * batch.frame.wide).sum() / mean
    limit = torch.finfo(batch.rows.dtype).max  # 1 / a tiny spread may not fit: stay finite
    whole = (gradient - radial * slope) / mean * batch.frame.zoom
    return whole.clamp_(-limit, limit)
