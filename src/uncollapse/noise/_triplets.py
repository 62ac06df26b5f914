"""Expected triplet loss of EPS §4.2 on `[..., n, n]` distances, without triplets: O(n² log n)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from uncollapse.noise._pairs import equal_labels, without_diagonal
from uncollapse.noise.model import NoiseModel

__all__ = ["triplet_of_distances", "triplet_weights"]


def triplet_of_distances(
    distances: Tensor, ids: Tensor, model: NoiseModel, margin: float, diagonal: str
) -> Tensor:
    """`expected_triplet` of `[..., n, n]` distances."""
    with torch.no_grad():
        slope, active = _triplet_slope(distances.detach(), ids, model, margin, diagonal)
    # The loss is linear between kinks: Σ ∂L/∂D_ij·D_ij + α·(weight of the active triplets).
    return (slope * distances).sum((-1, -2)) + margin * active


def triplet_weights(model: NoiseModel) -> tuple[float, float, float, float]:
    """(A, B, C, E) with E[δ_ij(1 − δ_ik)] = A + B[ij] − C([ik] + [jk]) − E[ijk].

    [ij] is 1 when i and j have the same true class. It is Σ_r P_ir·P_jr·(1 − P_kr) multiplied
    out with P_ir = q + (p − q)[r is the class of i].

    >>> a, b, c, e = triplet_weights(NoiseModel(2, 1.0))
    >>> a + b, a + b - 2 * c - e  # clean labels: own class with another class, and with its own
    (1.0, 0.0)
    """
    q, gap = model.q, model.p - model.q
    pair = model.classes * q**2 + 2 * q * gap
    a = pair - (model.classes * q**3 + 3 * q**2 * gap)
    return a, gap**2 * (1 - q), q * gap**2, gap**3


def _triplet_slope(
    distances: Tensor, ids: Tensor, model: NoiseModel, margin: float, diagonal: str
) -> tuple[Tensor, Tensor]:
    """∂L/∂D and the total weight of the active triplets, by counting in sorted rows."""
    a, b, c, e = triplet_weights(model)
    own = (ids[:, None] == ids).to(distances.dtype)
    apart = int(diagonal != "independent")
    candidates = distances
    if apart:  # the anchor is neither a negative (at infinity it is never active) ...
        candidates = distances + torch.diag(distances.new_full((len(ids),), torch.inf))

    # As positive j, D_ij has the weight of the k with D_ik < D_ij + α; as negative k, that of the
    # j with D_ij + α > D_ik. First over all of them, and over those in the anchor's class.
    ordered, order = _sort(candidates)
    below, not_above = _ranks(ordered, margin)
    own_here = own.expand_as(distances).gather(-1, order)
    own_before = torch.nn.functional.pad(own_here.cumsum(-1), (1, 0))
    own_above = own_before[..., -1:] - apart - own_before.gather(-1, not_above)
    as_positive = (a + b * own_here) * below.to(own.dtype)
    as_positive -= (c + e * own_here) * own_before.gather(-1, below)
    as_negative = (a - c * own_here) * (len(ids) - apart - not_above).to(own.dtype)
    as_negative += (b - e * own_here) * own_above
    as_positive = torch.empty_like(distances).scatter_(-1, order, as_positive)
    as_negative = torch.empty_like(distances).scatter_(-1, order, as_negative)
    # Then over those in the class of the pair's other sample.
    for members in (torch.nonzero(ids == k).flatten() for k in range(int(ids.max()) + 1)):
        ordered, order = _sort(candidates[..., members])
        below, not_above = _ranks(ordered, margin)
        above = len(members) - own[:, members[:1]] * apart - not_above
        as_positive.scatter_add_(-1, members[order], -c * below.to(own.dtype))
        as_negative.scatter_add_(-1, members[order], -c * above)
    slope = as_positive - as_negative
    if not apart:
        return slope, as_positive.sum((-1, -2))

    # ... nor a positive; and j = k is active with constant value α, so only the count has it.
    slope, as_positive = (without_diagonal(x, drop=True) for x in (slope, as_positive))
    repeated = without_diagonal(a + b * own - c * (own + 1) - e * own, drop=True)
    active = as_positive.sum((-1, -2)) - repeated.sum()
    if diagonal == "true":  # j = i: weight E[1 − δ_ik], hinge (α − D_ik)₊
        push = without_diagonal((1 - equal_labels(ids, model)) * (distances < margin), drop=True)
        return slope - push, active + push.sum((-1, -2))
    return slope, active


def _ranks(ordered: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """For each value v of a sorted row: how many are < v + α, and how many plus α are <= v.

    The same rounded sums in both, so that a triplet is active as seen from both of its sides.
    """
    raised = ordered + margin
    return torch.searchsorted(ordered, raised), torch.searchsorted(raised, ordered, right=True)


def _sort(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows ascending, and where they came from; on the CPU NumPy is several times faster."""
    if x.device.type == "cpu":
        order = torch.from_numpy(np.argsort(x.numpy(), axis=-1))
        return x.gather(-1, order), order
    ordered, order = x.sort(-1)
    return ordered, order
