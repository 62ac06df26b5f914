"""What EPS §3, §4 and appendices A and B state, with the conditions under which it is true.

The proofs of §4.2 bound an expected loss from below tuple by tuple. `triplet_bound` and
`margin_bound` are these bounds; an embedding that reaches one is a minimiser.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from uncollapse._base.arrays import Array, ArrayLike, class_ids, points
from uncollapse._base.check import InputError, check_choice, check_int, check_number
from uncollapse.distances import pairwise_distances
from uncollapse.noise.expected import check_terms, expected_loss, first_positive, minimise
from uncollapse.noise.model import NoiseModel, blobs, simplex


@dataclass(frozen=True)
class Ruling:
    """Whether a theorem holds (`None`: not settled by its proof), and why."""

    holds: bool | None
    why: str


def theorem_1(model: NoiseModel, n: int, dim: int, *, diagonal: str = "independent") -> Ruling:
    """Does every minimiser of the expected triplet loss collapse every class? EPS theorem 1.

    >>> theorem_1(NoiseModel(2, 0.8), 8, 2).holds
    True
    >>> theorem_1(NoiseModel(2, 0.8), 8, 7, diagonal="distinct").why
    'collapse is optimal, but equal distances inside classes (dim >= n - 1) are as good'
    """
    _check_setting(model, n, dim, diagonal)
    t, p, q = model.classes, model.p, model.q
    if p in (0.0, 1.0):
        return Ruling(False, "without noise every well separated embedding has loss 0")
    if p == q:
        return Ruling(False, "p = 1/t: labels say nothing about classes")
    if diagonal == "true":
        # Splitting a class by s > 0 changes the loss by s·((n − n/t)(p − q)² − (1 − S_same)).
        pull, push = (n - n / t) * (p - q) ** 2, 1 - model.same
        if dim >= n - 1 or (pull < push and dim >= t):
            return Ruling(False, "the anchor as its own positive pushes its class apart")
        return Ruling(None, "the anchor as its own positive pushes its class apart: minimise")
    alone = "only collapsed classes, α apart, reach the bound of every triplet pair"
    return _collapse_alone(t, n, dim, diagonal, alone)


def theorem_2(model: NoiseModel, n: int, dim: int, *, diagonal: str = "distinct") -> Ruling:
    """Is every minimiser of the expected margin loss collapsed classes, 2α apart? EPS theorem 2.

    >>> theorem_2(NoiseModel(2, 0.6), 8, 2).holds
    True
    >>> theorem_2(NoiseModel(3, 0.6), 9, 2).why
    'S_same = 0.44 < 1/2: all classes fall into one point, with β = −α'
    """
    _check_setting(model, n, dim, diagonal)
    t, same = model.classes, model.same
    if model.p in (0.0, 1.0):
        return Ruling(False, "without noise every well separated embedding has loss 0")
    if same == 0.5:
        return Ruling(False, "S_same = 1/2: the pull inside a class is balanced by the push")
    if same < 0.5:
        if diagonal == "true" and (n / t - 1) * (1 - 2 * same) <= 1:
            return Ruling(None, "S_same < 1/2, but the anchor's own pair still asks for β = α")
        falls = "one point costs less" if diagonal == "true" else "all classes fall into one point"
        return Ruling(False, f"S_same = {same:.2g} < 1/2: {falls}, with β = −α")
    alone = "S_same > 1/2: only collapsed classes, 2α apart, reach the bound"
    return _collapse_alone(t, n, dim, diagonal, alone)


def _check_setting(model: NoiseModel, n: int, dim: int, diagonal: str) -> None:
    check_int("n", n, low=2 * model.classes)  # a class of one sample is collapsed anyhow
    check_int("dim", dim)
    check_terms("triplet", 0.0, diagonal)


def _collapse_alone(t: int, n: int, dim: int, diagonal: str, why: str) -> Ruling:
    """Whether only collapsed classes reach the bound: they need room, others need dim >= n - 1."""
    if dim < t - 1:
        why = f"{t} classes cannot be equidistant in R^{dim}: the bound is not met"
        return Ruling(None, why)
    if diagonal != "independent" and dim >= n - 1:
        why = "collapse is optimal, but equal distances inside classes (dim >= n - 1) are as good"
        return Ruling(False, why)
    return Ruling(True, why)


def triplet_bound(
    model: NoiseModel, n: int, *, margin: float = 1.0, diagonal: str = "independent"
) -> float:
    """Lower bound of the expected triplet loss, from the proof of theorem 1.

    For an anchor and a pair {j, k} the two hinges cost at least 2α·min(W_ijk, W_ikj), whatever the
    embedding. `n` samples, equally many per class. With `"true"` it holds but is not met.

    >>> round(triplet_bound(NoiseModel(2, 0.6), 8), 4)
    122.88
    """
    a, b, c, e = model.triplet_weights
    size = check_int("n", n, low=model.classes) / model.classes
    own = size if diagonal == "independent" else size - 1  # j or k in the anchor's class
    others = n - size
    both_own = a + b - 2 * c - e
    mixed = min(a + b - c, a - c)  # weights differ by (p − q)²
    one_class, two_classes = a - c, a  # j and k outside the anchor's class
    ordered_outside = others * (size - 1) * one_class + others * (others - size) * two_classes
    total = own * (own - 1) * both_own + 2 * own * others * mixed + ordered_outside
    if diagonal == "independent":  # j = k costs α always
        total += own * both_own + others * one_class
    return check_number("margin", margin, low=0.0) * n * total


def margin_bound(
    model: NoiseModel, n: int, *, margin: float = 1.0, diagonal: str = "distinct"
) -> float:
    """Lower bound of the expected margin loss over embeddings and β, from theorem 2's proof.

    A pair costs at least 2α·min(S, 1 − S). `n` samples, equally many per class.

    >>> noise = NoiseModel(3, 0.6)
    >>> round(margin_bound(noise, 9), 4)
    46.08
    """
    size = check_int("n", n, low=model.classes) / model.classes
    own = size if diagonal == "independent" else size - 1
    inside = own * min(model.same, 1 - model.same)
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
    own = torch.from_numpy(ids[:, None] == ids).to(z.device)
    d = pairwise_distances(z)
    return float(d[own].max()), float(d[~own].min())


# Claims 1 to 4 of EPS appendix B: with easy positives a collapsed class is not optimal.

_ORDERS = {3: ("worst", "own-first"), 4: ("worst", "same-class")}
_FAR = 1 << 24  # ranks beyond this are not searched


def smallest_m(claim: int, p: float, t: int = 2, *, order: str = "worst") -> int:
    """The smallest M for which "there exists M" in a claim of EPS appendix B is true.

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
    check_choice("claim", str(claim), ("1", "2", "3", "4"))
    model = NoiseModel(t, check_number("p", p, low=0.0, high=1.0))
    if p in (0.0, 1.0):
        raise InputError("p", p, "a number strictly between 0 and 1")
    if claim in (1, 2):
        # From this size of a mode on the proof's bound settles it.
        slowest, share = max(1 - model.p, 1 - model.q), 16 * t / (1 - model.same)
        settled = 2 + math.ceil(math.log(share) / -math.log(slowest))
        losing = np.flatnonzero(mode_gain(claim, model, np.arange(1, settled + 1)) <= 0)
        return 2 * t * (int(losing[-1]) + 2 if len(losing) else 1)
    check_choice("order", order, _ORDERS[claim])
    if claim == 3:
        return _last_failing(lambda j: _claim_3_worst_gap(model, j, order))
    if order == "same-class":
        # K(t, t+j) and K(t+j, t) have equal terms but for the factors < 1 of those in between.
        return 1
    # The largest ratio of a label's terms in K(t+j, t) and K(t, t+j), over all orders, is
    # approached as the rank t grows: this M is the smallest that serves all ranks.
    high, low = max(model.p, model.q), min(model.p, model.q)
    odds = high * (1 - low) / (low * (1 - high))
    return _last_failing(lambda j: 1 - odds * (1 - low) ** (j - 1))


def mode_gain(claim: int, model: NoiseModel, half: ArrayLike, *, margin: float = 1.0) -> Array:
    """Expected loss of the collapsed f₁ minus that of the two-mode f₂; positive: two modes win.

    Claim 1 is the triplet loss, claim 2 the margin loss with β = α; both with easy positives.
    `half` are sizes of a mode: n = 2t·half. Closed form, any number of sizes at once; equal to the
    difference of `expected_loss` at `blobs` of 1 and of 2 modes.

    >>> mode_gain(1, NoiseModel(2, 0.8), [1, 2, 3]).round(3).tolist()
    [-1.658, -0.867, 2.49]
    """
    check_choice("claim", str(claim), ("1", "2"))
    h = np.asarray(half, dtype=np.float64)
    if h.size == 0 or h.min() < 1 or not bool(np.all(h == np.floor(h))):
        raise InputError("half", half, "whole numbers of at least 1")
    # Anchors outside the first class see both embeddings alike.
    together, split = (_anchor_loss(claim, model, 2 * h, near) for near in (2 * h - 1, h - 1))
    gain: Array = check_number("margin", margin, low=0.0) * 2 * h * (together - split)
    return gain


def claim_4_gap(model: NoiseModel, anchor: int, others: list[int], near: int, far: int) -> float:
    """K(near, far) − K(far, near) for two ranks from 0; positive: `far` is pushed beyond `near`.

    K(j, k) = E[Φ_ij·δ_ij·(1 − δ_ik)], of EPS claim 4. `others` are the true classes of the other
    samples, nearest first.

    >>> round(claim_4_gap(NoiseModel(2, 0.8), 0, [0, 0, 0], near=0, far=2), 4)
    0.1088
    """
    if not 0 <= near < far < len(others):
        raise InputError("near, far", (near, far), f"ranks 0 <= near < far < {len(others)}")
    first = first_positive(torch.tensor(anchor), torch.tensor(others), model)
    near_weight = (first[near] * (1 - model.probabilities[others[far]])).sum()
    return float(near_weight - first[far].sum())  # closer than the positive: δ is 0 already


def _anchor_loss(claim: int, model: NoiseModel, size: Array, near: Array) -> Array:
    """Expected loss at α = 1 of an anchor of the first class with `near` samples of it beside it.

    The others of its class, which has `size` samples, and all other classes are at distance α.
    """
    t, total = model.classes, np.zeros_like(size)
    far_own, third = size - 1 - near, model.q
    for weight, own, other in (
        (model.p, model.p, model.q),  # the anchor's label is its own class,
        ((t - 1) * model.q, model.q, model.p),  # or another one, `other`
    ):
        none_near = (1 - own) ** near
        none_far = (1 - own) ** far_own * ((1 - other) * (1 - third) ** (t - 2)) ** size
        wrong_far = far_own * (1 - own) + size * ((1 - other) + (t - 2) * (1 - third))
        if claim == 1:
            far = far_own + (t - 1) * size
            chosen_near = near * (1 - own - none_near)  # hinge α at the other near ones
            chosen_far = none_near * (2 * near * (1 - none_far) + wrong_far - far * none_far)
            total += weight * (chosen_near + chosen_far)
        else:
            total += weight * (none_near * (1 - none_far) + 2 * near * (1 - own) + wrong_far)
    return total


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


def _last_failing(gap: Callable[[int], float]) -> int:
    """Largest rank whose gap is not positive; the gap increases with the rank."""
    last = bisect_left(range(1, _FAR + 1), True, key=lambda rank: gap(rank) > 0)
    if last == _FAR:
        raise InputError("p", "a noise level", f"one with M below {_FAR}")
    return last


@dataclass(frozen=True)
class ClaimCheck:
    """One statement of the paper: `status` is `true`, `true if`, `false` or `misprint`."""

    where: str
    statement: str
    status: str
    truth: str
    evidence: str


def check_claims_eps() -> list[ClaimCheck]:
    """The truth table of the EPS paper's theory; every number in it is computed by this call.

    Takes a few seconds: three rows minimise an expected loss.

    >>> rows = check_claims_eps()
    >>> [row.status for row in rows if row.where.startswith("Theorem 1")]
    ['true', 'true if', 'false']
    """
    return [*_printed_formulas(), *_theorem_1(), *_theorem_2(), *_claims()]


def _printed_formulas() -> list[ClaimCheck]:
    clean = NoiseModel(2, 1.0)
    z = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    labels = clean.labels(6)
    anchored = expected_loss("triplet", z, labels, clean)
    d, same = pairwise_distances(z), labels[:, None] == labels
    triplet = same[:, :, None] & ~same[:, None, :] & ~torch.eye(6, dtype=torch.bool)[:, :, None]
    printed = ((d[:, :, None] - d[None] + 1).relu() * triplet).sum()
    mixed, wide, ab = [[0.0], [2.0], [1.0]], [[0.0], [1.0], [10.0]], ["A", "A", "B"]
    loss = expected_loss("triplet", mixed, ab, clean)
    at_alpha = expected_loss("margin", wide, ab, clean, beta=1.0)
    low, high = zero_margin_boundaries(wide, ab) or (torch.nan, torch.nan)
    inside = expected_loss("margin", wide, ab, clean, beta=(low + high) / 2)
    spread = expected_loss("eps-triplet", simplex(8), clean.labels(8), clean, diagonal="true")
    return [
        ClaimCheck(
            "§3 triplet loss",
            "(D_ap − D_pn + α)₊",
            "misprint",
            "(D_ap − D_an + α)₊; a sum over all triplets is the same for both",
            f"6 random points: {printed:.4f} as printed, {anchored:.4f} with D_an",
        ),
        ClaimCheck(
            "§4.1 triplet",
            "diam < 2α + dist gives zero loss",
            "false",
            "diam + α <= dist does",
            f"A = {{0, 2}}, B = {{1}}, α = 1: 2 < 3, loss {loss:.1f}; "
            f"α <= {zero_triplet_margin(wide, ab):g} for A = {{0, 1}}, B = {{10}}",
        ),
        ClaimCheck(
            "§4.1 margin",
            "β = α gives zero loss",
            "false",
            "β in [diam + α, dist − α] does, if diam + 2α <= dist",
            f"A = {{0, 1}}, B = {{10}}, α = 1: loss {at_alpha:.1f} at β = 1, "
            f"{inside:.1f} in [{low:g}, {high:g}]",
        ),
        ClaimCheck(
            "§4.3, appendix B",
            "the easy positive is the nearest in C_a, which holds a",
            "misprint",
            "C_a without a; else nothing is pulled, and samples α apart cost nothing",
            f"8 points all α apart, in two classes, a in C_a: loss {spread:.1f}",
        ),
    ]


def _theorem_1() -> list[ClaimCheck]:
    noise = NoiseModel(2, 0.6)
    z, labels = blobs(noise, 8)
    paper, distinct, true = (
        float(expected_loss("triplet", z, labels, noise, diagonal=diagonal))
        for diagonal in ("independent", "distinct", "true")
    )
    # Two simplices of edge 0.5 in spaces of their own, every two of their corners 1.5 apart.
    corners = simplex(4, 0.5) - simplex(4, 0.5).mean(0)
    equal = torch.zeros(8, 7, dtype=torch.float64)
    equal[:4, :3], equal[4:, 3:6] = corners, corners
    equal[4:, 6] = math.sqrt(1.5**2 - 2 * float(corners[0].square().sum()))
    spread = expected_loss("triplet", equal, labels, noise)
    best = minimise("triplet", noise, 8, 2, diagonal="true", starts=10, steps=1000)
    bound = triplet_bound(noise, 8)
    apart = triplet_bound(noise, 8, diagonal="distinct")
    statement = "minimisers of the expected triplet loss collapse every class"
    return [
        ClaimCheck(
            "Theorem 1, fresh label at j = i",
            statement,
            "true",
            "0 < p < 1, p ≠ 1/t, dim >= t − 1",
            f"t=2 n=8 p=.6: collapsed {paper:.2f} = lower bound {bound:.2f}",
        ),
        ClaimCheck(
            "Theorem 1, distinct samples",
            statement,
            "true if",
            "also dim < n − 1; else collapse is optimal but not alone",
            f"t=2 n=8 p=.6: collapsed {distinct:.2f} = bound {apart:.2f}; "
            f"in R⁷ class diameter 0.5 costs {spread:.2f} too",
        ),
        ClaimCheck(
            "Theorem 1, δ_ii = 1",
            statement,
            "false",
            "the anchor as its own positive pushes its class apart",
            f"t=2 n=8 dim=2 p=.6: {best.value:.2f} < {true:.2f} collapsed",
        ),
    ]


def _theorem_2() -> list[ClaimCheck]:
    two, three = NoiseModel(2, 0.6), NoiseModel(3, 0.6)
    z2, y2 = blobs(two, 8, distance=2.0)
    z3, y3 = blobs(three, 9, distance=2.0)
    collapsed = expected_loss("margin", z2, y2, two, beta=1.0)
    collapsed_three = expected_loss("margin", z3, y3, three, beta=1.0)
    best = minimise("margin", three, 9, 2, starts=4, steps=600)
    point = expected_loss("margin", torch.zeros(9, 2), y3, three, beta=-1.0)
    statement = "minimisers of the expected margin loss are collapsed classes, 2α apart, β = α"
    return [
        ClaimCheck(
            "Theorem 2, t = 2",
            statement,
            "true if",
            "0 < p < 1, p ≠ 1/2, dim < n − 1",
            f"n=8 p=.6: collapsed {collapsed:.2f} = lower bound {margin_bound(two, 8):.2f}",
        ),
        ClaimCheck(
            "Theorem 2, t >= 3",
            statement,
            "true if",
            "also p² + (1−p)²/(t−1) > 1/2 and dim >= t − 1; else one point, β = −α",
            f"t=3 n=9 p=.6: one point {point:.2f} (found {best.value:.2f}) < "
            f"collapsed {collapsed_three:.2f}",
        ),
    ]


def _claims() -> list[ClaimCheck]:
    first, second = (", ".join(f"{_span(claim, t)} (t={t})" for t in (2, 3, 5)) for claim in (1, 2))
    worst, beyond = (
        "/".join(str(smallest_m(claim, p)) for p in (0.8, 0.9, 0.95, 0.99)) for claim in (3, 4)
    )
    again = mode_gain(1, NoiseModel(5, 0.9), [3, 22])
    tie, gap = (claim_4_gap(NoiseModel(2, 0.9), 0, [1] * 6, 2, far) for far in (3, 4))
    return [
        ClaimCheck(
            "Claim 1",
            "triplet: two modes beat collapse for n >= M",
            "true",
            "0 < p < 1; M grows fast with t, and wins at small n can be lost again",
            f"M = {first}; t=5 p=.9: gain {again[0]:+.1f} at n=30, {again[1]:+.1f} at n=220",
        ),
        ClaimCheck(
            "Claim 2",
            "margin: two modes beat collapse for n >= M",
            "true",
            "0 < p < 1, β = α",
            f"M = {second}",
        ),
        ClaimCheck(
            "Claim 3",
            "margin: a sample beyond rank M is pushed to β + α",
            "true",
            "0 < p < 1; M depends on which samples are closer",
            f"t=2: M = {smallest_m(3, 0.9, order='own-first')} if the closer ones are of the "
            f"anchor's class; worst {worst} for p = .8/.9/.95/.99",
        ),
        ClaimCheck(
            "Claim 4",
            "triplet: a sample more than M ranks beyond x_t is pushed α beyond it",
            "true",
            "0 < p < 1; M = 1 if both are of one class, and one M serves all ranks t",
            f"t=2 p=.9, one class: gap {tie:.4f} at j=1, {gap:.4f} at j=2; "
            f"any classes {beyond} for p = .8/.9/.95/.99",
        ),
    ]


def _span(claim: int, t: int) -> str:
    """The range of the smallest M, from light to heavy noise."""
    values = [smallest_m(claim, p, t) for p in (0.55, 0.6, 0.7, 0.8, 0.9, 0.95)]
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"
