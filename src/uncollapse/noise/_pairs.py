"""Pair losses of EPS §4.2 on `[..., n, n]` distances, so that many embeddings go in one call."""

from __future__ import annotations

import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike, points
from uncollapse._base.check import InputError, check_choice, check_number
from uncollapse.distances import pairwise_distances
from uncollapse.noise.model import NoiseModel, class_numbers

__all__ = [
    "DIAGONALS",
    "contrastive_of_distances",
    "equal_labels",
    "margin_of_distances",
    "negative_margin_terms",
    "prepare",
    "rowwise",
    "without_diagonal",
]

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
