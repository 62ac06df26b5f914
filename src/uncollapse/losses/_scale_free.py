"""Losses of distances over their mean: shrinking the embedding no longer lowers them.

A loss of d / mean(d) does not change when all embeddings are scaled, so by Euler's identity its
radial drift <Z_c, ∇L> is 0 identically: there is no pull towards, or away from, one point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from uncollapse.losses._all_triplets import Charge
from uncollapse.losses._blocks import FAR, cross_class
from uncollapse.losses._classwise import SortedClasses
from uncollapse.losses._frame import Frame

__all__ = ["mean_distance", "scale_free"]


def scale_free(frame: Frame, classes: SortedClasses, charge: Callable[[Frame], Charge]) -> Charge:
    """`charge` of the batch with its distances over their mean, the mean inside the gradient.

    `charge` is given the frame with y and unit divided by the mean distance. When all rows are
    equal nothing is divided: the loss is that of distances 0, with gradient 0.
    """
    if frame.unit == 0.0:
        return charge(frame)
    mean, slope = mean_distance(frame, classes)
    value, gradient = charge(replace(frame, y=frame.y / (frame.unit * mean), unit=1.0 / mean))
    # u = r / μ(r), so dL/dr = (G - <G, r>/μ ∇μ) / μ, and y = unit · r.
    radial = float((gradient * frame.rows).sum()) / mean
    return Charge(value, (gradient - radial * slope) / (mean * frame.unit))


def mean_distance(frame: Frame, classes: SortedClasses) -> tuple[float, Tensor]:
    """Mean distance between two of the frame's rows, and its gradient with respect to them."""
    rows, z = frame.rows[classes.order], frame.z[classes.order]
    n = len(rows)
    total = 0.0

    def weigh(start: int, stop: int, distance: Tensor) -> Tensor:
        nonlocal total
        weight = (distance < FAR / 2).to(distance.dtype)
        total += float(torch.linalg.vecdot(weight, distance).sum(dtype=torch.float64))
        return weight

    gradient = cross_class(z, rows, classes, weigh)
    inside = classes.distances(rows, rows.dtype)
    gradient += classes.gradient(rows, torch.ones_like(inside), inside)
    total += float(inside[classes.real].sum())
    pairs = n * (n - 1)
    result = torch.empty_like(gradient)
    result[classes.order] = gradient.div_(pairs)
    return total / pairs, result
