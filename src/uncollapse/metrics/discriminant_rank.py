"""LiDAR: the rank of linear discriminant analysis, Thilak et al. 2023 (arXiv 2312.04000)."""

from __future__ import annotations

import numpy as np

from uncollapse._base.arrays import ArrayLike
from uncollapse._base.check import check_number
from uncollapse.metrics._class_means import ClassMeans
from uncollapse.metrics.spectral import smooth_rank

__all__ = ["lidar"]


def lidar(x: ArrayLike, labels: ArrayLike, *, delta: float = 1e-4, eps: float = 1e-8) -> float:
    """LiDAR: exp of the entropy of the eigenvalues of Σ_W^-½ Σ_B Σ_W^-½, (1) to (4) there.

    There a class is a sample and its rows are augmentations of it; here the classes are those of
    `labels`, which the paper's definition allows. Σ_B is the covariance of the class means, Σ_W the
    mean over classes of two rows or more of their unbiased covariances, plus `delta` times the
    identity; p = λ/|λ|₁ + eps. At most about min(C - 1, dim).

    Blind to place, but `delta` is in squared units of x: an embedding whose spread inside classes
    is below √delta gives the rank of its class means alone. 0 where all class means coincide, so
    for rows that are one point and for one class.

    >>> x = np.repeat([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], 2, axis=0)
    >>> round(lidar(x, [0, 0, 1, 1, 2, 2]), 4)
    2.0
    """
    check_number("eps", eps, 0.0, 1.0)
    check_number("delta", delta, 0.0)
    found = ClassMeans.of(x, labels)
    sizes = found.layout.counts
    several = sizes > 1
    weight = np.where(several, 1 / (np.maximum(sizes - 1, 1) * max(int(several.sum()), 1)), 0.0)
    weighted = found.residuals * np.sqrt(weight[found.layout.ids])[:, None]
    inside, axes = np.linalg.eigh(weighted.T @ weighted)
    inside = np.maximum(inside, 0.0)
    # delta is in the units of x, these rows are x over `unit`; below 1e-30 of them is rounding.
    more = max(delta / found.unit / found.unit, 1e-30)
    within = inside + more if more < 1 else inside / more + 1  # the scale of λ does not count
    values = np.linalg.svd((found.centred @ axes) / np.sqrt(within), compute_uv=False) ** 2
    padded = np.zeros(found.means.shape[1])
    padded[: len(values)] = values[: len(padded)]
    return smooth_rank(padded, eps)
