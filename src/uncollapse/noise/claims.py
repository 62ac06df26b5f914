"""Claims 1 to 4 of EPS appendix B: with easy positives a collapsed class is not optimal."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

from uncollapse._base.arrays import Array, ArrayLike
from uncollapse._base.check import InputError, check_choice, check_number
from uncollapse.noise._easy import first_positive
from uncollapse.noise.model import NoiseModel

__all__ = ["ORDERS", "claim_3_gap", "claim_4_gap", "mode_gain", "smallest_m"]


ORDERS = {3: ("worst", "own-first"), 4: ("worst", "same-class")}
_FAR = 1 << 24  # ranks beyond this are not searched


def smallest_m(claim: int, p: float, t: int = 2, *, order: str = "worst") -> int:
    """The smallest M for which a claim's "there exists M" is true.

    - 1 and 2 (f₂ beats f₁ for n >= M): the smallest multiple of 2t from which on the two-mode
      embedding beats the collapsed one for the triplet or, with β = α, the margin loss. Exact:
      beyond a known n the proof's bound decides, below it every n is computed.
    - 3 (j > M is pushed to β + α) and 4 (x_{t+j}, j > M, is pushed α beyond x_t): `order`
      is `"worst"`, over all classes of all samples in between (for 4 also over all ranks t), or
      `"own-first"` (3: everything in between is of the anchor's class) or `"same-class"` (4:
      x_t and x_{t+j} are of one class, anything in between).

    >>> smallest_m(1, p=0.8), smallest_m(2, p=0.8)
    (12, 8)
    >>> smallest_m(3, p=0.9), smallest_m(3, p=0.9, order="own-first")
    (15, 1)
    """
    check_choice("claim", str(claim), [str(k) for k in (1, 2, 3, 4)])
    model = NoiseModel(t, check_number("p", p, low=0.0, high=1.0))
    if p in (0.0, 1.0):
        raise InputError("p", p, "a number strictly between 0 and 1")
    if claim in (1, 2):
        return _first_winning_n(claim, model)
    check_choice("order", order, ORDERS[claim])
    if claim == 3:
        return _last_failing(lambda j: _claim_3_worst_gap(model, j, order))
    if order == "same-class":
        # K(t, t+j) and K(t+j, t) have equal terms but for the factors < 1 of those in between.
        return 1
    return _last_failing(lambda j: _claim_4_worst_gap(model, j))


def mode_gain(claim: int, model: NoiseModel, half: ArrayLike, *, margin: float = 1.0) -> Array:
    """Expected loss of the collapsed f₁ minus that of the two-mode f₂; positive: two modes win.

    Claim 1 is the triplet loss, claim 2 the margin loss with β = α; both with easy positives.
    `half` are sizes of a mode: n = 2t·half. Closed form, any number of sizes at once; equal to the
    difference of `expected_eps_triplet` (`expected_eps_margin`) at `blobs` of 1 and of 2 modes.

    >>> mode_gain(1, NoiseModel(2, 0.8), [1, 2, 3]).round(3).tolist()
    [-1.658, -0.867, 2.49]
    """
    check_choice("claim", str(claim), ("1", "2"))
    h = np.asarray(half, dtype=np.float64)
    if h.size == 0 or h.min() < 1 or not bool(np.all(h == np.floor(h))):
        raise InputError("half", half, "whole numbers of at least 1")
    # Anchors outside the first class see both embeddings alike.
    per_anchor = _anchor_loss(claim, model, 2 * h, 2 * h - 1) - _anchor_loss(
        claim, model, 2 * h, h - 1
    )
    gain: Array = check_number("margin", margin, low=0.0) * 2 * h * per_anchor
    return gain


def claim_3_gap(model: NoiseModel, anchor: int, others: list[int]) -> list[float]:
    """E[1 − δ] − E[Φ] of each sample; positive: it is pushed away from the anchor.

    `others` are the true classes of the other samples, nearest first.

    >>> [round(x, 3) for x in claim_3_gap(NoiseModel(2, 0.8), 0, [0, 0, 1])]
    [-0.36, 0.16, 0.571]
    """
    chosen = first_positive(torch.tensor(anchor), torch.tensor(others), model).sum(-1)
    table = model.probabilities
    return (1 - table[others] @ table[anchor] - chosen).tolist()


def claim_4_gap(model: NoiseModel, anchor: int, others: list[int], near: int, far: int) -> float:
    """K(near, far) − K(far, near) for two ranks from 0; positive: `far` is pushed beyond `near`.

    K(j, k) = E[Φ_ij·δ_ij·(1 − δ_ik)].

    >>> round(claim_4_gap(NoiseModel(2, 0.8), 0, [0, 0, 0], near=0, far=2), 4)
    0.1088
    """
    if not 0 <= near < far < len(others):
        raise InputError("near, far", (near, far), f"ranks 0 <= near < far < {len(others)}")
    first = first_positive(torch.tensor(anchor), torch.tensor(others), model)
    near_weight = (first[near] * (1 - model.probabilities[others[far]])).sum()
    return float(near_weight - first[far].sum())  # closer than the positive: δ is 0 already


def _anchor_loss(claim: int, model: NoiseModel, size: Array, near: Array) -> Array:
    """Expected loss at α = 1 of an anchor of the first class whose `near` classmates are with it.

    The rest of its class of `size`, and all other classes, are at distance α.
    """
    t, total = model.classes, np.zeros_like(size)
    for weight, own, other, third in (
        (model.p, model.p, model.q, model.q),  # the anchor's label is its own class,
        ((t - 1) * model.q, model.q, model.p, model.q),  # or another one, `other`
    ):
        mates = size - 1 - near
        none_near = (1 - own) ** near
        none_far = (1 - own) ** mates * ((1 - other) * (1 - third) ** (t - 2)) ** size
        wrong_far = mates * (1 - own) + size * ((1 - other) + (t - 2) * (1 - third))
        if claim == 1:
            far = mates + (t - 1) * size
            chosen_near = near * (1 - own - none_near)  # hinge α at the other near ones
            chosen_far = none_near * (2 * near * (1 - none_far) + wrong_far - far * none_far)
            total += weight * (chosen_near + chosen_far)
        else:
            total += weight * (none_near * (1 - none_far) + 2 * near * (1 - own) + wrong_far)
    return total


def _first_winning_n(claim: int, model: NoiseModel) -> int:
    """n = 2t·h after the last h that loses; from h* on the proof's bound settles it."""
    slowest = max(1 - model.p, 1 - model.q)
    share = 16 * model.classes / (1 - model.same)
    settled = 2 + math.ceil(math.log(share) / -math.log(slowest))
    gains = mode_gain(claim, model, np.arange(1, settled + 1))
    losing = np.flatnonzero(gains <= 0)
    return 2 * model.classes * (int(losing[-1]) + 2 if len(losing) else 1)


def _claim_3_worst_gap(model: NoiseModel, rank: int, order: str) -> float:
    """Smallest E[1 − δ] − E[Φ] of the sample at `rank`, over the classes of the closer ones.

    E[Φ] is convex in how many of the closer ones are of each class, so the extremes suffice.
    """
    table = model.probabilities
    pairs = [0] if order == "own-first" else [0, 1]
    closer = [0] if order == "own-first" else range(model.classes)
    return min(
        float(1 - table[0] @ table[j] - (table[0] * table[j] * (1 - table[c]) ** (rank - 1)).sum())
        for j in pairs
        for c in closer
    )


def _claim_4_worst_gap(model: NoiseModel, j: int) -> float:
    """1 − the largest ratio of a label's terms in K(t+j, t) and K(t, t+j), over all orders.

    The ratio is approached as the rank t grows, so this is the smallest M that serves all ranks.
    """
    high, low = max(model.p, model.q), min(model.p, model.q)
    odds = high * (1 - low) / (low * (1 - high))
    return 1 - odds * (1 - low) ** (j - 1)


def _last_failing(gap: Callable[[int], float]) -> int:
    """Largest rank whose gap is not positive; gaps grow with the rank."""
    high = 1
    while gap(high) <= 0:
        high *= 2
        if high > _FAR:
            raise InputError("p", "a noise level", f"one with M below {_FAR}")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if gap(middle) <= 0 else (low, middle)
    return low
