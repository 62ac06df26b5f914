"""Expected contrastive, triplet and margin losses under label noise: EPS §4.2, closed forms.

All are sums over index tuples; the paper divides by n² (pairs) or n³ (triplets). `diagonal` says
what coinciding indices mean:

- `"independent"`: the algebra of the paper's proofs; a repeated index gets a fresh label;
- `"distinct"`: only tuples of different samples, as a miner draws them;
- `"true"`: every tuple, with δ_ii = 1 because a sample shares its own label.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from uncollapse._base.arrays import ArrayLike, points
from uncollapse._base.check import InputError, check_choice, check_number
from uncollapse.distances import pairwise_distances
from uncollapse.noise.model import NoiseModel, class_numbers

__all__ = [
    "DIAGONALS",
    "contrastive_of_distances",
    "easy_margin_of_distances",
    "easy_triplet_of_distances",
    "equal_labels",
    "expected_contrastive",
    "expected_eps_margin",
    "expected_eps_triplet",
    "expected_margin",
    "expected_triplet",
    "first_positive",
    "margin_of_distances",
    "negative_margin_terms",
    "prepare",
    "rowwise",
    "triplet_of_distances",
    "triplet_weights",
    "without_diagonal",
]


# Pair losses of EPS §4.2 on `[..., n, n]` distances, so that many embeddings go in one call.

DIAGONALS = ("independent", "distinct", "true")


def prepare(
    embedding: ArrayLike, labels: ArrayLike, model: NoiseModel, margin: float, diagonal: str
) -> tuple[Tensor, Tensor]:
    """Checked input as (float64 distances, class numbers), on the embedding's device."""
    check_number("margin", margin, low=0.0)
    check_choice("diagonal", diagonal, DIAGONALS)
    z = points(embedding, "embedding")
    ids = class_numbers(model, labels, len(z)).to(z.device)
    return pairwise_distances(z.to(torch.float64)), ids


def rowwise(beta: float | Tensor, distances: Tensor) -> Tensor:
    """β as one float64 number a row."""
    n = distances.shape[-1]
    tensor = torch.as_tensor(beta, dtype=torch.float64, device=distances.device)
    if tensor.ndim > 1 or (tensor.ndim == 1 and len(tensor) != n):
        raise InputError("beta", f"shape {tuple(tensor.shape)}", f"one number, or {n}, one a row")
    return tensor.expand(n)


def contrastive_of_distances(
    distances: Tensor, ids: Tensor, model: NoiseModel, margin: float, diagonal: str
) -> Tensor:
    """`expected_contrastive` of `[..., n, n]` distances."""
    equal = equal_labels(ids, model)
    terms = equal * distances + (1 - equal) * (margin - distances).relu()
    return without_diagonal(terms, drop=diagonal != "independent").sum((-1, -2))


def margin_of_distances(
    distances: Tensor, beta: Tensor, ids: Tensor, model: NoiseModel, margin: float, diagonal: str
) -> Tensor:
    """`expected_margin` of `[..., n, n]` distances and `[..., n]` boundaries."""
    pull = equal_labels(ids, model) * (distances - beta[..., None] + margin).relu()
    total = without_diagonal(pull, drop=diagonal != "independent").sum((-1, -2))
    if diagonal == "true":
        total = total + (margin - beta).relu().sum(-1)  # δ_ii = 1 at distance 0
    return total + negative_margin_terms(distances, beta, ids, model, margin, diagonal)


def negative_margin_terms(
    distances: Tensor, beta: Tensor, ids: Tensor, model: NoiseModel, margin: float, diagonal: str
) -> Tensor:
    """Σ (1 − S_ij)·(β_i − D_ij + α)₊: the half of the margin loss that mining leaves alone."""
    push = (1 - equal_labels(ids, model)) * (beta[..., None] - distances + margin).relu()
    return without_diagonal(push, drop=diagonal != "independent").sum((-1, -2))


def equal_labels(ids: Tensor, model: NoiseModel) -> Tensor:
    """S_ij: probability that i and j, as different samples, get equal labels."""
    own = (ids[:, None] == ids).to(torch.float64)
    return model.different + (model.same - model.different) * own


def without_diagonal(terms: Tensor, *, drop: bool) -> Tensor:
    """`terms`, with zeros where i = j if these are to be dropped."""
    if not drop:
        return terms
    return terms * (1 - torch.eye(terms.shape[-1], dtype=terms.dtype, device=terms.device))


# Losses with easy positives under label noise on `[..., n, n]` distances: EPS appendix B.

_ELEMENTS = 1 << 22  # entries of a rows × samples × labels block held at a time: 32 MB


def easy_triplet_of_distances(
    distances: Tensor, ids: Tensor, model: NoiseModel, margin: float, diagonal: str
) -> Tensor:
    """`expected_eps_triplet` of `[..., n, n]` distances, in O(n²(log n + t))."""
    if diagonal == "true":  # the anchor is its own nearest positive, at distance 0
        push = (1 - equal_labels(ids, model)) * (margin - distances).relu()
        return without_diagonal(push, drop=True).sum((-1, -2))
    total = distances.new_zeros(distances.shape[:-2])
    for rows in _row_blocks(distances, model):
        d, order = _nearest_first(distances, rows, diagonal)
        with torch.no_grad():
            slope, active = _easy_slope(d.detach(), order, rows, ids, model, margin)
        total = total + (slope * d).sum((-1, -2)) + margin * active
    return total


def easy_margin_of_distances(
    distances: Tensor, beta: Tensor, ids: Tensor, model: NoiseModel, margin: float, diagonal: str
) -> Tensor:
    """`expected_eps_margin` of `[..., n, n]` distances and `[..., n]` boundaries."""
    total = negative_margin_terms(distances, beta, ids, model, margin, diagonal)
    if diagonal == "true":
        return total + (margin - beta).relu().sum(-1)
    for rows in _row_blocks(distances, model):
        d, order = _nearest_first(distances, rows, diagonal)
        chosen = first_positive(ids[rows], ids[order], model).sum(-1)
        total = total + (chosen * (d - beta[..., rows, None] + margin).relu()).sum((-1, -2))
    return total


def first_positive(anchor: Tensor, others: Tensor, model: NoiseModel) -> Tensor:
    """`[..., m, t]`: P(anchor and the s-th of `others` get label r, and no earlier one does).

    `anchor` are class numbers, `others` class numbers `[..., m]` in order of distance. Summed
    over r it is E[Φ].

    >>> first = first_positive(torch.tensor(0), torch.tensor([0, 0, 1]), NoiseModel(2, 0.8))
    >>> [round(x, 4) for x in first.sum(-1).tolist()]
    [0.68, 0.16, 0.1088]
    """
    table = model.probabilities.to(others.device)
    label = table[others]
    none_before = pad((1 - label).cumprod(-2)[..., :-1, :], (0, 0, 1, 0), value=1.0)
    return table[anchor].unsqueeze(-2) * label * none_before


def _easy_slope(
    d: Tensor, order: Tensor, rows: Tensor, ids: Tensor, model: NoiseModel, margin: float
) -> tuple[Tensor, Tensor]:
    """∂L/∂d of rows sorted by distance, and the total weight of the active triplets."""
    first = first_positive(ids[rows], ids[order], model)
    chosen = first.sum(-1)
    other = 1 - model.probabilities.to(d.device)[ids[order]]
    place = torch.arange(d.shape[-1], device=d.device)
    d = d.contiguous()
    raised = d + margin
    # As positive: every closer k is active; farther ones up to d + α.
    reach = torch.maximum(torch.searchsorted(d, raised), place + 1)
    other_before = pad(other.cumsum(-2), (0, 0, 1, 0))
    farther = _at(other_before, reach) - other_before[..., 1:, :]
    as_positive = place * chosen + (first * farther).sum(-1)
    # As negative: of every farther positive; of closer ones whose d + α reaches beyond it.
    start = torch.searchsorted(raised, d, right=True)
    first_before = pad(first.cumsum(-2), (0, 0, 1, 0))
    closer = first_before[..., :-1, :] - _at(first_before, torch.minimum(start, place))
    beyond = chosen.sum(-1, keepdim=True) - chosen.cumsum(-1)
    as_negative = beyond + (other * closer).sum(-1)
    return as_positive - as_negative, as_positive.sum((-1, -2))


def _nearest_first(distances: Tensor, rows: Tensor, diagonal: str) -> tuple[Tensor, Tensor]:
    """Distances from the anchors `rows` ascending, and to whom; ties do not change the loss."""
    n = distances.shape[-1]
    others = torch.arange(n, device=distances.device).expand(len(rows), n)
    if diagonal == "distinct":  # C_a must not contain the anchor itself
        others = others[others != rows[:, None]].view(len(rows), n - 1)
    values = distances[..., rows, :].gather(-1, others.expand(*distances.shape[:-2], -1, -1))
    values, order = values.sort(dim=-1, stable=True)
    return values, others.expand_as(order).gather(-1, order)


def _at(prefix: Tensor, index: Tensor) -> Tensor:
    """Row `index[..., s]` of `prefix[..., :, r]`, for every label r."""
    return prefix.gather(-2, index.unsqueeze(-1).expand(*index.shape, prefix.shape[-1]))


def _row_blocks(distances: Tensor, model: NoiseModel) -> tuple[Tensor, ...]:
    per_row = model.classes * max(1, distances[..., 0, :].numel())
    rows = torch.arange(distances.shape[-1], device=distances.device)
    return torch.split(rows, max(1, _ELEMENTS // per_row))


# Expected triplet and margin losses with easy positives under label noise: EPS appendix B.


def expected_eps_triplet(
    embedding: ArrayLike,
    labels: ArrayLike,
    model: NoiseModel,
    *,
    margin: float = 1.0,
    diagonal: str = "distinct",
) -> Tensor:
    """E Σ (D_i,easy − D_ik + α)₊ over anchors i and negatives k; a float64 scalar.

    Exact value and gradient in O(n²(log n + t)) time. The loss is continuous: samples at equal
    distance may be taken in any order.

    >>> z = [[0.0], [0.0], [1.0], [1.0]]
    >>> round(float(expected_eps_triplet(z, [0, 0, 1, 1], NoiseModel(2, 0.8))), 4)
    2.0992
    """
    distances, ids = prepare(embedding, labels, model, margin, diagonal)
    return easy_triplet_of_distances(distances, ids, model, margin, diagonal)


def expected_eps_margin(
    embedding: ArrayLike,
    labels: ArrayLike,
    model: NoiseModel,
    *,
    beta: float | Tensor,
    margin: float = 1.0,
    diagonal: str = "distinct",
) -> Tensor:
    """E Σ (D_i,easy − β_i + α)₊ + Σ (1 − S_ij)(β_i − D_ij + α)₊; a float64 scalar.

    `beta` is one number or one for each row, and gets its gradient too.

    >>> z = [[0.0], [0.0], [2.0], [2.0]]
    >>> round(float(expected_eps_margin(z, [0, 0, 1, 1], NoiseModel(2, 0.8), beta=1.0)), 4)
    4.2496
    """
    distances, ids = prepare(embedding, labels, model, margin, diagonal)
    beta_rows = rowwise(beta, distances)
    return easy_margin_of_distances(distances, beta_rows, ids, model, margin, diagonal)


# Expected triplet loss of EPS §4.2 on `[..., n, n]` distances, without triplets: O(n² log n).


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


def expected_contrastive(
    embedding: ArrayLike,
    labels: ArrayLike,
    model: NoiseModel,
    *,
    margin: float = 1.0,
    diagonal: str = "distinct",
) -> Tensor:
    """Σ S_ij·D_ij + (1 − S_ij)·(α − D_ij)₊ over pairs; a float64 scalar, differentiable.

    >>> float(expected_contrastive([[0.0], [0.5]], [0, 0], NoiseModel(2, 1.0)))
    1.0
    """
    distances, ids = prepare(embedding, labels, model, margin, diagonal)
    return contrastive_of_distances(distances, ids, model, margin, diagonal)


def expected_triplet(
    embedding: ArrayLike,
    labels: ArrayLike,
    model: NoiseModel,
    *,
    margin: float = 1.0,
    diagonal: str = "distinct",
) -> Tensor:
    """Σ E[δ_ij(1 − δ_ik)]·(D_ij − D_ik + α)₊ over triplets; a float64 scalar, differentiable.

    Exact value and gradient in O(n² log n) time and O(n²) memory: the weight depends on three
    class equalities only, so sorted distances give, for each pair, the weight of active triplets.

    >>> z = [[0.0], [0.0], [1.0], [1.0]]  # collapsed classes, α apart
    >>> round(float(expected_triplet(z, [0, 0, 1, 1], NoiseModel(2, 0.8))), 4)
    3.84
    """
    distances, ids = prepare(embedding, labels, model, margin, diagonal)
    return triplet_of_distances(distances, ids, model, margin, diagonal)


def expected_margin(
    embedding: ArrayLike,
    labels: ArrayLike,
    model: NoiseModel,
    *,
    beta: float | Tensor,
    margin: float = 1.0,
    diagonal: str = "distinct",
) -> Tensor:
    """Σ S_ij·(D_ij − β_i + α)₊ + (1 − S_ij)·(β_i − D_ij + α)₊; a float64 scalar, differentiable.

    `beta` is one number or one for each row, and gets its gradient too.

    >>> z = [[0.0, 0.0]] * 9  # t = 3, p = 0.6: one point and β = −α beat the collapsed classes
    >>> noise = NoiseModel(3, 0.6)
    >>> round(float(expected_margin(z, noise.labels(9), noise, beta=-1.0)), 4)
    46.08
    """
    distances, ids = prepare(embedding, labels, model, margin, diagonal)
    return margin_of_distances(distances, rowwise(beta, distances), ids, model, margin, diagonal)
