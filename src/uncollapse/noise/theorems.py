"""Theorems 1 and 2 of EPS §4.2 with the conditions under which they are true, and §4.1.

The proofs bound an expected loss from below tuple by tuple. `triplet_bound` and `margin_bound`
are these bounds; an embedding that reaches one is a minimiser.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike, class_ids, points
from uncollapse._base.check import check_choice, check_int, check_number
from uncollapse.distances import pairwise_distances
from uncollapse.noise._pairs import DIAGONALS
from uncollapse.noise._triplets import triplet_weights
from uncollapse.noise.model import NoiseModel

__all__ = [
    "Verdict",
    "margin_bound",
    "theorem_1",
    "theorem_2",
    "triplet_bound",
    "zero_margin_boundaries",
    "zero_triplet_margin",
]


@dataclass(frozen=True)
class Verdict:
    """Whether a statement holds (`None`: not settled by the proof), and why."""

    holds: bool | None
    why: str


def theorem_1(model: NoiseModel, n: int, dim: int, *, diagonal: str = "independent") -> Verdict:
    """Does every minimiser of the expected triplet loss collapse every class? EPS theorem 1.

    >>> theorem_1(NoiseModel(2, 0.8), 8, 2).holds
    True
    >>> theorem_1(NoiseModel(2, 0.8), 8, 7, diagonal="distinct").why
    'collapse is optimal, but equal distances inside classes (dim >= n - 1) are as good'
    """
    _check(model, n, dim, diagonal)
    t, p, q = model.classes, model.p, model.q
    if p in (0.0, 1.0):
        return Verdict(False, "without noise every well separated embedding has loss 0")
    if p == q:
        return Verdict(False, "p = 1/t: labels say nothing about classes")
    if diagonal == "true":
        # Splitting a class by s > 0 changes the loss by s·((n − n/t)(p − q)² − (1 − S_same)).
        pull, push = (n - n / t) * (p - q) ** 2, 1 - model.same
        if dim >= n - 1 or (pull < push and dim >= t):
            return Verdict(False, "the anchor as its own positive pushes its class apart")
        return Verdict(None, "the anchor as its own positive pushes its class apart: minimise")
    if dim < t - 1:
        return Verdict(None, f"{t} classes cannot be equidistant in R^{dim}: the bound is not met")
    if diagonal == "distinct" and dim >= n - 1:
        why = "collapse is optimal, but equal distances inside classes (dim >= n - 1) are as good"
        return Verdict(False, why)
    return Verdict(True, "only collapsed classes, α apart, reach the bound of every triplet pair")


def theorem_2(model: NoiseModel, n: int, dim: int, *, diagonal: str = "distinct") -> Verdict:
    """Is every minimiser of the expected margin loss collapsed classes, 2α apart? EPS theorem 2.

    >>> theorem_2(NoiseModel(2, 0.6), 8, 2).holds
    True
    >>> theorem_2(NoiseModel(3, 0.6), 9, 2).why
    'S_same = 0.44 < 1/2: all classes fall into one point, with β = −α'
    """
    _check(model, n, dim, diagonal)
    t, same = model.classes, model.same
    if model.p in (0.0, 1.0):
        return Verdict(False, "without noise every well separated embedding has loss 0")
    if same == 0.5:
        return Verdict(False, "S_same = 1/2: the pull inside a class is balanced by the push")
    if same < 0.5:
        per_anchor = (n / t - 1) * (1 - 2 * same)
        if diagonal == "true" and per_anchor <= 1:
            return Verdict(None, "S_same < 1/2, but the anchor's own pair still asks for β = α")
        falls = "one point costs less" if diagonal == "true" else "all classes fall into one point"
        return Verdict(False, f"S_same = {same:.2g} < 1/2: {falls}, with β = −α")
    if dim < t - 1:
        return Verdict(None, f"{t} classes cannot be equidistant in R^{dim}: the bound is not met")
    if diagonal != "independent" and dim >= n - 1:
        why = "collapse is optimal, but equal distances inside classes (dim >= n - 1) are as good"
        return Verdict(False, why)
    return Verdict(True, "S_same > 1/2: only collapsed classes, 2α apart, reach the bound")


def triplet_bound(
    model: NoiseModel, n: int, *, margin: float = 1.0, diagonal: str = "independent"
) -> float:
    """Lower bound of the expected triplet loss, from the proof of theorem 1.

    For an anchor and a pair {j, k} the two hinges cost at least 2α·min(W_ijk, W_ikj), whatever the
    embedding. `n` samples, equally many a class. With `"true"` it holds but is not met.

    >>> round(triplet_bound(NoiseModel(2, 0.6), 8), 4)
    122.88
    """
    a, b, c, e = triplet_weights(model)
    size = check_int("n", n, low=model.classes) / model.classes
    mates = size if diagonal == "independent" else size - 1  # j or k in the anchor's class
    others = n - size
    both_own = a + b - 2 * c - e
    mixed = min(a + b - c, a - c)  # weights differ by (p − q)²
    one_class, two_classes = a - c, a  # j and k outside the anchor's class
    ordered_outside = others * (size - 1) * one_class + others * (others - size) * two_classes
    total = mates * (mates - 1) * both_own + 2 * mates * others * mixed + ordered_outside
    if diagonal == "independent":  # j = k costs α always
        total += mates * both_own + others * one_class
    return check_number("margin", margin, low=0.0) * n * total


def margin_bound(
    model: NoiseModel, n: int, *, margin: float = 1.0, diagonal: str = "distinct"
) -> float:
    """Lower bound of the expected margin loss over embeddings and β, from theorem 2's proof.

    A pair costs at least 2α·min(S, 1 − S). `n` samples, equally many a class.

    >>> noise = NoiseModel(3, 0.6)
    >>> round(margin_bound(noise, 9), 4)
    46.08
    """
    size = check_int("n", n, low=model.classes) / model.classes
    mates = size if diagonal == "independent" else size - 1
    inside = mates * min(model.same, 1 - model.same)
    outside = (n - size) * min(model.different, 1 - model.different)
    return check_number("margin", margin, low=0.0) * 2 * n * (inside + outside)


def zero_triplet_margin(embedding: ArrayLike, labels: ArrayLike) -> float:
    """Largest α for which §4.1 promises zero clean triplet loss: dist − diam, if positive.

    Corrected: the paper prints diam < 2α + dist, which an interleaved embedding satisfies too.
    Sufficient, not necessary: anchors differ.

    >>> zero_triplet_margin([[0.0], [1.0], [3.0]], [0, 0, 1])
    1.0
    """
    diameter, distance = _spread(embedding, labels)
    return distance - diameter


def zero_margin_boundaries(
    embedding: ArrayLike, labels: ArrayLike, *, margin: float = 1.0
) -> tuple[float, float] | None:
    """The common β for which the clean margin loss is zero: [diam + α, dist − α], or None.

    Corrected: the paper prints β = α, which gives zero only if every class is one point.

    >>> zero_margin_boundaries([[0.0], [1.0], [5.0]], [0, 0, 1])
    (2.0, 3.0)
    """
    diameter, distance = _spread(embedding, labels)
    low, high = diameter + margin, distance - margin
    return (low, high) if low <= high else None


def _spread(embedding: ArrayLike, labels: ArrayLike) -> tuple[float, float]:
    """Largest diameter of a class, smallest distance between two classes: EPS definition 1."""
    z = points(embedding, "embedding").detach()
    ids, _ = class_ids(labels, len(z), min_classes=2)
    own: Tensor = torch.from_numpy(ids[:, None] == ids).to(z.device)
    d = pairwise_distances(z)
    return float(d[own].max()), float(d[~own].min())


def _check(model: NoiseModel, n: int, dim: int, diagonal: str) -> None:
    check_int("n", n, low=2 * model.classes)  # a class of one sample is collapsed anyhow
    check_int("dim", dim)
    check_choice("diagonal", diagonal, DIAGONALS)
