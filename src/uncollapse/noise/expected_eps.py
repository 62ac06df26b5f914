"""Expected triplet and margin losses with easy positives under label noise: EPS appendix B.

Sums over tuples; the paper divides by n. `diagonal` as in `expected`: `"distinct"` leaves the
anchor out of its own positives, as sampling does. With `"true"` the anchor is its own easy
positive, the printed definition of Φ: the loss then only pushes. `"independent"` gives the
anchor a twin with a label of its own.
"""

from __future__ import annotations

from torch import Tensor

from uncollapse._base.arrays import ArrayLike
from uncollapse.noise._easy import easy_margin_of_distances, easy_triplet_of_distances
from uncollapse.noise._pairs import prepare, rowwise
from uncollapse.noise.model import NoiseModel

__all__ = ["expected_eps_margin", "expected_eps_triplet"]


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
