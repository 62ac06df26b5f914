"""Losses with easy positives under label noise on `[..., n, n]` distances: EPS appendix B.

E[Φ_ij] = Σ_r P_ir·P_jr·Π_{t closer than j}(1 − P_tr). For a triplet with k farther than j the
factor (1 − P_kr) goes inside the sum; a k closer than j differs from Y_i already.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from uncollapse.noise._pairs import equal_labels, negative_margin_terms, without_diagonal
from uncollapse.noise.model import NoiseModel

__all__ = ["easy_margin_of_distances", "easy_triplet_of_distances", "first_positive"]

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
