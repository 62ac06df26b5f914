"""Expected losses under label noise, and what minimises them: EPS §4.2 and appendix B.

All are sums over index tuples, in closed form; the paper divides by n² (pairs) or n³ (triplets).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from uncollapse._base.arrays import ArrayLike, class_ids, points
from uncollapse._base.check import InputError, check_choice, check_int, check_number
from uncollapse.distances import pairwise_distances
from uncollapse.noise.model import NoiseModel, simplex

_WITH_BETA = ("margin", "eps-margin")
_OBJECTIVES = ("contrastive", "triplet", "eps-triplet", *_WITH_BETA)
_ELEMENTS = 1 << 22  # entries of a rows × samples × labels block held at a time: 32 MB


def expected_loss(
    objective: str,
    embedding: ArrayLike,
    labels: ArrayLike,
    model: NoiseModel,
    *,
    beta: float | Tensor | None = None,
    margin: float = 1.0,
    diagonal: str = "distinct",
) -> Tensor:
    """Expected loss of an embedding whose `labels` are noisy; a float64 scalar, differentiable.

    `objective` is one of these, S_ij being the probability that i and j get equal labels:

    - `"contrastive"`: Σ S_ij·D_ij + (1 − S_ij)·(α − D_ij)₊ over pairs;
    - `"triplet"`: Σ E[δ_ij(1 − δ_ik)]·(D_ij − D_ik + α)₊ over triplets, in O(n² log n) time and
      O(n²) memory;
    - `"margin"`: Σ S_ij·(D_ij − β_i + α)₊ + (1 − S_ij)·(β_i − D_ij + α)₊ over pairs;
    - `"eps-triplet"`: E Σ (D_i,easy − D_ik + α)₊ over anchors i and negatives k, in
      O(n²(log n + t)) time. Samples at equal distance may be taken in any order;
    - `"eps-margin"`: E Σ (D_i,easy − β_i + α)₊ + Σ (1 − S_ij)(β_i − D_ij + α)₊.

    `margin` is α. `beta`, for the two margin losses, is one number or one for each row, and gets
    its gradient too. `diagonal` says what coinciding indices mean:

    - `"independent"`: the algebra of the paper's proofs; a repeated index gets a fresh label;
    - `"distinct"`: only tuples of different samples, as a miner draws them;
    - `"true"`: every tuple, with δ_ii = 1 because a sample shares its own label.

    >>> z, labels = [[0.0], [0.0], [1.0], [1.0]], [0, 0, 1, 1]  # collapsed classes, α apart
    >>> round(float(expected_loss("triplet", z, labels, NoiseModel(2, 0.8))), 4)
    3.84
    >>> round(float(expected_loss("eps-triplet", z, labels, NoiseModel(2, 0.8))), 4)
    2.0992
    """
    check_terms(objective, margin, diagonal)
    z = points(embedding, "embedding")
    ids, classes = class_ids(labels, len(z))
    if len(classes) > model.classes:
        allowed = f"at most the model's {model.classes}"
        raise InputError("labels", f"{len(classes)} classes", allowed)
    if (beta is None) == (objective in _WITH_BETA):
        raise InputError.conflict("pass beta for the margin losses, and only for them")
    boundaries = torch.as_tensor(0.0 if beta is None else beta, dtype=torch.float64)
    if boundaries.ndim > 1 or (boundaries.ndim == 1 and len(boundaries) != len(z)):
        allowed = f"one number, or {len(z)}, one per row"
        raise InputError("beta", f"shape {tuple(boundaries.shape)}", allowed)
    distances = pairwise_distances(z.to(torch.float64))
    numbers = torch.from_numpy(ids).to(z.device)
    rows = boundaries.to(z.device).expand(len(z))
    return _loss_of_distances(objective, distances, rows, numbers, model, margin, diagonal)


@dataclass(frozen=True)
class Minimum:
    """The best embedding found: an upper bound of the minimum, not a certificate.

    `values` are the final values of all starts: `"collapsed"` and `"one point"` first (they keep
    coinciding points together, so they are the best of their kind), then the random ones.
    `beta` is None for losses without boundaries.
    """

    embedding: Tensor
    labels: Tensor
    beta: Tensor | None
    value: float
    values: dict[str, float]
    class_diameters: Tensor
    class_gap: float
    collapsed: bool


def minimise(
    objective: str,
    model: NoiseModel,
    n: int,
    dim: int,
    *,
    margin: float = 1.0,
    diagonal: str = "distinct",
    starts: int = 8,
    steps: int = 1500,
    generator: torch.Generator | None = None,
) -> Minimum:
    """Minimise an expected loss over embeddings of `n` samples in R^dim, and over β if it has any.

    `objective`, `margin` and `diagonal` are those of `expected_loss`. Adam with a step size that
    falls to 0, from `starts` random embeddings and two structured ones at once. `collapsed` says
    whether every class has a diameter below 2 % of the margin; `class_gap` is the smallest distance
    between two classes. Without a generator a fixed seed is used.

    >>> best = minimise("triplet", NoiseModel(2, 0.8), 6, 2, starts=2, steps=300)
    >>> best.collapsed, round(best.class_gap, 3)
    (True, 1.0)
    """
    check_terms(objective, margin, diagonal)
    for name, value in (("dim", dim), ("starts", starts), ("steps", steps)):
        check_int(name, value)
    labels = model.labels(n)
    generator = generator or torch.Generator().manual_seed(0)
    z, beta = _starts(labels, model, dim, margin, starts, generator)

    def loss() -> tuple[Tensor, Tensor]:
        # Direct differences are exact however far an embedding has collapsed.
        distances = torch.linalg.vector_norm(z[:, :, None] - z[:, None], dim=-1)
        terms = beta, labels, model, margin, diagonal
        return _loss_of_distances(objective, distances, *terms), distances

    optimizer = torch.optim.Adam([z, beta], lr=0.05 * (margin or 1.0))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: (1 - k / steps) ** 2)
    for _ in range(steps):
        optimizer.zero_grad()
        loss()[0].sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        scheduler.step()
    with torch.no_grad():
        values, distances = loss()

    best = int(values.argmin())
    d = distances[best]
    diameters = torch.stack([d[labels == c][:, labels == c].max() for c in range(model.classes)])
    names = ["collapsed", "one point", *(f"random {k}" for k in range(starts))]
    return Minimum(
        embedding=z[best].detach().clone(),
        labels=labels,
        beta=beta[best].detach().clone() if objective in _WITH_BETA else None,
        value=float(values[best]),
        values=dict(zip(names, values.tolist(), strict=True)),
        class_diameters=diameters,
        class_gap=float(d[labels[:, None] != labels].min()),
        collapsed=bool(diameters.max() <= 0.02 * margin),
    )


def check_terms(objective: str, margin: float, diagonal: str) -> None:
    """Raise unless the objective, its margin and the meaning of equal indices are valid."""
    check_choice("objective", objective, _OBJECTIVES)
    check_number("margin", margin, low=0.0)
    check_choice("diagonal", diagonal, ("independent", "distinct", "true"))


def _loss_of_distances(
    objective: str,
    distances: Tensor,
    beta: Tensor,
    ids: Tensor,
    model: NoiseModel,
    margin: float,
    diagonal: str,
) -> Tensor:
    """`expected_loss` of `[..., n, n]` distances, `[..., n]` boundaries and class numbers `[n]`."""
    # S_ij: the probability that i and j, as different samples, get equal labels.
    own = (ids[:, None] == ids).to(torch.float64)
    equal = model.different + (model.same - model.different) * own
    off_diagonal = torch.ones_like(equal)
    if diagonal != "independent":
        off_diagonal.fill_diagonal_(0.0)
    if objective == "contrastive":
        terms = equal * distances + (1 - equal) * (margin - distances).relu()
        return (terms * off_diagonal).sum((-1, -2))
    if objective == "triplet":
        with torch.no_grad():
            slope, active = _triplet_slope(distances.detach(), own, ids, model, margin, diagonal)
            if diagonal == "true":  # j = i: weight E[1 − δ_ik], hinge (α − D_ik)₊
                push = (1 - equal) * (distances < margin) * off_diagonal
                slope, active = slope - push, active + push.sum((-1, -2))
        # The loss is linear between kinks: Σ ∂L/∂D_ij·D_ij + α·(weight of the active triplets).
        return (slope * distances).sum((-1, -2)) + margin * active
    if objective == "eps-triplet" and diagonal == "true":
        # The anchor is its own nearest positive, at distance 0.
        return ((1 - equal) * (margin - distances).relu() * off_diagonal).sum((-1, -2))
    if objective == "eps-triplet":
        total = distances.new_zeros(distances.shape[:-2])
        for _, d, order, first in _nearest_first(distances, ids, model, diagonal):
            other = 1 - model.probabilities.to(d.device)[ids[order]]
            with torch.no_grad():
                slope, active = _easy_slope(d.detach().contiguous(), first, other, margin)
            total = total + (slope * d).sum((-1, -2)) + margin * active
        return total
    push = (1 - equal) * (beta[..., None] - distances + margin).relu() * off_diagonal
    total = push.sum((-1, -2))
    if diagonal == "true":  # δ_ii = 1 at distance 0
        total = total + (margin - beta).relu().sum(-1)
    if objective == "margin":
        pull = equal * (distances - beta[..., None] + margin).relu() * off_diagonal
        return total + pull.sum((-1, -2))
    if diagonal != "true":
        for rows, d, _, first in _nearest_first(distances, ids, model, diagonal):
            pull = first.sum(-1) * (d - beta[..., rows, None] + margin).relu()
            total = total + pull.sum((-1, -2))
    return total


def first_positive(anchor: Tensor, others: Tensor, model: NoiseModel) -> Tensor:
    """`[..., m, t]`: P(anchor and the s-th of `others` get label r, and no earlier one does).

    `anchor` are class numbers, `others` class numbers `[..., m]` in order of distance. Summed
    over r it is E[Φ] of EPS appendix B.

    >>> first = first_positive(torch.tensor(0), torch.tensor([0, 0, 1]), NoiseModel(2, 0.8))
    >>> [round(x, 4) for x in first.sum(-1).tolist()]
    [0.68, 0.16, 0.1088]
    """
    table = model.probabilities.to(others.device)
    label = table[others]
    none_before = pad((1 - label).cumprod(-2)[..., :-1, :], (0, 0, 1, 0), value=1.0)
    return table[anchor].unsqueeze(-2) * label * none_before


def _triplet_slope(
    distances: Tensor, own: Tensor, ids: Tensor, model: NoiseModel, margin: float, diagonal: str
) -> tuple[Tensor, Tensor]:
    """∂L/∂D and the total weight of the active triplets, by counting in sorted rows."""
    a, b, c, e = model.triplet_weights
    apart = int(diagonal != "independent")
    candidates = distances
    if apart:  # the anchor is neither a negative (at infinity it is never active) ...
        candidates = distances + torch.diag(distances.new_full((len(ids),), torch.inf))

    # As positive j, D_ij has the weight of the k with D_ik < D_ij + α; as negative k, that of the
    # j with D_ij + α > D_ik. First over all of them, and over those in the anchor's class.
    order, below, not_above = _ranks(candidates, margin)
    own_here = own.expand_as(distances).gather(-1, order)
    own_before = pad(own_here.cumsum(-1), (1, 0))
    own_above = own_before[..., -1:] - apart - own_before.gather(-1, not_above)
    as_positive = (a + b * own_here) * below.to(own.dtype)
    as_positive -= (c + e * own_here) * own_before.gather(-1, below)
    as_negative = (a - c * own_here) * (len(ids) - apart - not_above).to(own.dtype)
    as_negative += (b - e * own_here) * own_above
    as_positive = torch.empty_like(distances).scatter_(-1, order, as_positive)
    as_negative = torch.empty_like(distances).scatter_(-1, order, as_negative)
    # Then over those in the class of the pair's other sample.
    for members in (torch.nonzero(ids == k).flatten() for k in range(int(ids.max()) + 1)):
        order, below, not_above = _ranks(candidates[..., members], margin)
        above = len(members) - own[:, members[:1]] * apart - not_above
        as_positive.scatter_add_(-1, members[order], -c * below.to(own.dtype))
        as_negative.scatter_add_(-1, members[order], -c * above)
    slope = as_positive - as_negative
    if not apart:
        return slope, as_positive.sum((-1, -2))

    # ... nor a positive; and j = k is active with constant value α, so only the count has it.
    off_diagonal = 1 - torch.eye(len(ids), dtype=own.dtype, device=own.device)
    repeated = (a + b * own - c * (own + 1) - e * own) * off_diagonal
    return slope * off_diagonal, (as_positive * off_diagonal).sum((-1, -2)) - repeated.sum()


def _ranks(x: Tensor, margin: float) -> tuple[Tensor, Tensor, Tensor]:
    """The order of each row, and for each of its values v how many are < v + α or <= v − α.

    The same rounded sums in both, so that a triplet is active as seen from both of its sides.
    """
    # On the CPU NumPy sorts several times faster.
    on_cpu = x.device.type == "cpu"
    order = torch.from_numpy(np.argsort(x.numpy(), axis=-1)) if on_cpu else x.argsort(-1)
    ordered = x.gather(-1, order)
    raised = ordered + margin
    below = torch.searchsorted(ordered, raised)
    return order, below, torch.searchsorted(raised, ordered, right=True)


def _easy_slope(d: Tensor, first: Tensor, other: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """∂L/∂d of rows sorted by distance, and the total weight of the active triplets.

    `first` is `first_positive` of the rows, `other` the probability not to have label r.
    """
    chosen = first.sum(-1)
    rank = torch.arange(d.shape[-1], device=d.device)
    raised = d + margin
    # As positive: every closer k is active; farther ones up to d + α.
    reach = torch.maximum(torch.searchsorted(d, raised), rank + 1)
    other_before = pad(other.cumsum(-2), (0, 0, 1, 0))
    farther = _at(other_before, reach) - other_before[..., 1:, :]
    as_positive = rank * chosen + (first * farther).sum(-1)
    # As negative: of every farther positive; of closer ones whose d + α reaches beyond it.
    start = torch.searchsorted(raised, d, right=True)
    first_before = pad(first.cumsum(-2), (0, 0, 1, 0))
    closer = first_before[..., :-1, :] - _at(first_before, torch.minimum(start, rank))
    beyond = chosen.sum(-1, keepdim=True) - chosen.cumsum(-1)
    as_negative = beyond + (other * closer).sum(-1)
    return as_positive - as_negative, as_positive.sum((-1, -2))


def _at(prefix: Tensor, index: Tensor) -> Tensor:
    """Row `index[..., s]` of `prefix[..., :, r]`, for every label r."""
    return prefix.gather(-2, index.unsqueeze(-1).expand(*index.shape, prefix.shape[-1]))


def _nearest_first(
    distances: Tensor, ids: Tensor, model: NoiseModel, diagonal: str
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Blocks of anchors: rows, distances ascending, the samples at them, `first_positive`.

    Ties do not change the loss.
    """
    n = distances.shape[-1]
    everyone = torch.arange(n, device=distances.device)
    per_row = model.classes * max(1, distances[..., 0, :].numel())
    for rows in torch.split(everyone, max(1, _ELEMENTS // per_row)):
        others = everyone.expand(len(rows), n)
        if diagonal == "distinct":  # C_a must not contain the anchor itself
            others = others[others != rows[:, None]].view(len(rows), n - 1)
        values = distances[..., rows, :].gather(-1, others.expand(*distances.shape[:-2], -1, -1))
        values, order = values.sort(dim=-1, stable=True)
        order = others.expand_as(order).gather(-1, order)
        yield rows, values, order, first_positive(ids[rows], ids[order], model)


def _starts(
    labels: Tensor, model: NoiseModel, dim: int, margin: float, count: int, g: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Embeddings `[count + 2, n, dim]` and boundaries `[count + 2, n]` to start from."""
    z = torch.randn(count + 2, len(labels), dim, generator=g, dtype=torch.float64) * margin
    if dim >= model.classes - 1:
        corners = torch.zeros(model.classes, dim, dtype=torch.float64)
        corners[:, : model.classes - 1] = simplex(model.classes, margin)
    else:  # no room for equidistant classes
        corners = z[0, : model.classes].clone()
    z[0], z[1] = corners[labels], 0.0
    beta = torch.full((count + 2, len(labels)), float(margin), dtype=torch.float64)
    beta[1] = -margin
    return z.requires_grad_(), beta.requires_grad_()
