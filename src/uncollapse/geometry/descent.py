"""Gradient descent of the hard-mined triplet loss on the points themselves: HNM Fig. 4."""

from __future__ import annotations

import torch

from uncollapse._base.arrays import ArrayLike, points64
from uncollapse._base.check import check_int, check_number
from uncollapse._base.classes import ClassLayout
from uncollapse.distances import pairwise_distances
from uncollapse.geometry.nearest import NearestSeparated
from uncollapse.geometry.set_distances import hausdorff_like
from uncollapse.geometry.triplet_separation import separation

__all__ = ["gradient_descent_separated"]


def gradient_descent_separated(
    x: ArrayLike, labels: ArrayLike, alpha: float = 0.0, *, steps: int = 50, lr: float = 0.05
) -> NearestSeparated:
    """Where plain gradient descent takes the points, as the paper does for its Fig. 4.

    Each step descends the triplet loss (4) of every anchor's hardest triplet, summed over the
    anchors; all of them stop moving once separated. `value` is the Hausdorff-like distance (12) to
    the end point. It bounds (13) from above only if the end point is separated, which `separated`
    says; `nearest_separated` comes nearer, and without shrinking everything.

    >>> end = gradient_descent_separated([[0.0], [1.0], [1.2]], [0, 0, 1], steps=20)
    >>> end.separated, end.method
    (True, 'gradient descent')
    """
    raw = points64(x, min_rows=2)
    layout = ClassLayout.of(labels, len(raw), min_classes=2)
    alpha = check_number("alpha", alpha, 0.0)
    steps, lr = check_int("steps", steps, 0), check_number("lr", lr, 0.0)
    ids = torch.from_numpy(layout.ids)
    mates = ids[:, None] == ids
    loss = max(0.0, alpha - separation(raw, layout.ids).margin)
    z = torch.from_numpy(raw.copy()).requires_grad_()
    for _ in range(steps):
        distance = pairwise_distances(z)
        farthest = distance.masked_fill(~mates, 0.0).amax(dim=1)
        nearest = distance.masked_fill(mates, torch.inf).amin(dim=1)
        total = (farthest - nearest + alpha).clamp(min=0.0).sum()
        (gradient,) = torch.autograd.grad(total, z)
        z = (z - lr * gradient).detach().requires_grad_()
    end = z.detach()
    separated = separation(end, layout.ids).margin >= alpha
    value = hausdorff_like(raw, end, layout.ids)
    # L/4 <= d_haus for every α; a bound on the distance to separated points, not to this end point.
    lower = loss / 4.0
    return NearestSeparated(end, value, lower, "gradient descent", separated)
