"""Expected contrastive, triplet and margin losses under label noise: EPS §4.2, closed forms.

All are sums over index tuples; the paper divides by n² (pairs) or n³ (triplets). `diagonal` says
what coinciding indices mean:

- `"independent"`: the algebra of the paper's proofs; a repeated index gets a fresh label;
- `"distinct"`: only tuples of different samples, as a miner draws them;
- `"true"`: every tuple, with δ_ii = 1 because a sample shares its own label.
"""

from __future__ import annotations

from torch import Tensor

from uncollapse._base.arrays import ArrayLike
from uncollapse.noise._pairs import (
    contrastive_of_distances,
    margin_of_distances,
    prepare,
    rowwise,
)
from uncollapse.noise._triplets import triplet_of_distances
from uncollapse.noise.model import NoiseModel

__all__ = ["expected_contrastive", "expected_margin", "expected_triplet"]


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
