"""Radial drift: whether a loss pulls an embedding towards one point, before any training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike, points
from uncollapse._base.check import check_int
from uncollapse.health.loss_pull import (
    LEFT_OUT,
    Batch,
    LossFn,
    Pull,
    check_loss_fn,
    leave_out,
    pull,
    several,
)

__all__ = ["Drift", "LossFn", "drift", "has_unit_rows", "radial", "radial_of"]


@dataclass(frozen=True)
class Drift:
    """Drift of a loss, its standard deviation over batches, and the loss over the mean distance.

    `spread` is NaN where one batch was measured once. During a collapse `relative_loss` does not
    fall while the diameter does.
    """

    value: float
    spread: float
    relative_loss: float


def drift(
    loss_fn: LossFn,
    embeddings: ArrayLike | Sequence[Batch],
    labels: ArrayLike | None = None,
    *,
    normalized: bool = False,
    resamples: int = 0,
    seed: int = 0,
) -> Drift:
    """<Z_c, ∇L> / mean pairwise distance, for any `loss_fn(embeddings, labels)`.

    Under gradient flow d/dt |Z_c|² = −2 <Z_c, ∇L>, with Z_c the batch about its centre. So positive
    drift pulls everything towards one point, negative spreads it, and 0 is indifferent to scale.
    For a triplet hinge it is, by Euler's identity, the mean over triplets of d_ap − d_an, counting
    only active ones, over the mean distance; for a scale-free loss it is 0. Positive drift is
    necessary for collapse, not sufficient: shrinking stops if the relative loss reaches 0 first.

    One backward pass, to the embeddings alone: parameters of the loss get no gradient. A miner's
    own random generator moves on as in any call.

    Args:
        loss_fn: ours, pytorch-metric-learning's, or any callable that gives a scalar.
        embeddings: one batch `[N, dim]` with its `labels`, or several as `[(embeddings, labels)]`:
            the value is then their mean and the spread their standard deviation.
        normalized: the model ends in an L2 normalisation. Rows are normalised here and ∇L is
            projected onto the sphere's tangents: the pull towards one direction.
        resamples: for one batch, estimate the spread by this many runs that each leave out a
            quarter of every class (a delete-d jackknife).
        seed: of the resamples.

    >>> from uncollapse.losses import TripletLoss
    >>> z, labels = torch.tensor([[0.0], [3.0], [1.0]]), [0, 0, 1]
    >>> round(drift(TripletLoss(margin=0.2), z, labels).value, 6)  # (3 - 1 + 3 - 2) / 2, over 2
    0.75
    >>> abs(drift(TripletLoss(margin=0.2, scale_free=True), z, labels).value) < 1e-6
    True
    """
    check_loss_fn(loss_fn)
    if labels is None:
        measured = [radial(loss_fn, z, y, normalized)[:2] for z, y in several(embeddings)]
        value, relative = np.mean(measured, axis=0).tolist()
        deviation = np.std([one[0] for one in measured], ddof=1) if len(measured) > 1 else math.nan
        return Drift(value, float(deviation), relative)
    whole = points(embeddings, "embeddings", min_rows=2)
    value, relative, _ = radial(loss_fn, whole, labels, normalized)
    check_int("resamples", resamples, 0)
    if resamples < 2:
        return Drift(value, math.nan, relative)
    rng = np.random.default_rng(seed)
    subsets = [leave_out(whole, labels, rng) for _ in range(resamples)]
    values = [radial(loss_fn, z, y, normalized)[0] for z, y in subsets]
    return Drift(value, float(np.std(values)) * math.sqrt((1 - LEFT_OUT) / LEFT_OUT), relative)


def radial(
    loss_fn: LossFn, z: ArrayLike, labels: ArrayLike, normalized: bool = False
) -> tuple[float, float, float]:
    """Drift, relative loss and mean distance of one batch; drift 0 for one that is a point.

    >>> from uncollapse.losses import ContrastiveLoss
    >>> radial(ContrastiveLoss(margin=1.0), torch.zeros(4, 2), [0, 0, 1, 1])
    (0.0, inf, 0.0)
    """
    return radial_of(pull(loss_fn, z, labels, normalized))


def radial_of(found: Pull) -> tuple[float, float, float]:
    """The same of a gradient that is known."""
    if found.mean == 0.0:
        return 0.0, math.inf if found.loss > 0 else 0.0, 0.0
    value = float((found.rows * found.slope).sum()) / found.mean
    return value, found.loss / found.mean, found.mean


def has_unit_rows(z: Tensor) -> bool:
    """Whether all rows have length 1, so that only their directions can be pulled together.

    >>> has_unit_rows(torch.eye(3)), has_unit_rows(torch.ones(3, 2).double())
    (True, False)
    """
    norms = torch.linalg.vector_norm(z.detach().float(), dim=1)
    return bool((norms - 1.0).abs().max() < 1e-4)
