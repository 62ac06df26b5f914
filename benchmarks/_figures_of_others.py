"""What other libraries compute to notice a collapse, as their sources have it; more is worse.

MONAI: `monai/metrics/embedding_collapse.py`. stable-pretraining: `callbacks/rankme.py`, `lidar.py`.
lightly: `utils/debug.py`.
"""

from __future__ import annotations

import math

import numpy as np
from sklearn.metrics import silhouette_score

from uncollapse.metrics.collapse import lidar, principal_axes

Array = np.ndarray
_GROUP = 10  # rows that the LiDAR callback takes for views of one sample


def collapse_level(z: Array) -> float:
    """1 - sqrt(dim) times lightly's `std_of_l2_normalized`: the mean deviation of unit rows."""
    unit = z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-12)
    return 1 - math.sqrt(z.shape[1]) * float(unit.std(axis=0, ddof=1).mean())


def centroid_similarity(z: Array, y: Array) -> float:
    """MONAI: the mean cosine of two class means, from 0 to 1."""
    means = np.stack([z[y == c].mean(0) for c in np.unique(y)])
    means = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-300)
    cosines = (means @ means.T)[np.triu_indices(len(means), 1)]
    return float(np.clip((cosines.mean() + 1) / 2, 0, 1))


def lost_rank(z: Array) -> float:
    """MONAI: 1 - effective rank over the largest it can be, of centred rows; 1 for a point."""
    values = np.linalg.svd(z - z.mean(0), compute_uv=False)
    if values.sum() == 0:
        return 1.0
    share = values / values.sum()
    rank = math.exp(-float((share * np.log(np.maximum(share, 1e-300))).sum()))
    return 1 - rank / min(z.shape)


def worst_class_rank(z: Array, y: Array) -> float:
    """MONAI: the same inside each class; the worst class. No part of its aggregate."""
    return max(lost_rank(z[y == c]) for c in np.unique(y) if (y == c).sum() > 1)


def no_separation(z: Array, y: Array) -> float:
    """MONAI: 1 for a silhouette of -1, 0 for one of 1, by cosines."""
    return (1 - float(silhouette_score(z, y, metric="cosine"))) / 2


def of_three(z: Array, y: Array) -> list[float]:
    """What MONAI aggregates, where there is no second domain."""
    return [centroid_similarity(z, y), lost_rank(z), no_separation(z, y)]


def chunked_lidar(z: Array, y: Array | None = None) -> float:
    """stable-pretraining: LiDAR of ten rows at a time, as they come or class by class."""
    if y is not None:
        z = z[np.argsort(y, kind="stable")]
    groups = np.arange(len(z)) // _GROUP
    whole = len(z) // _GROUP * _GROUP
    return lidar(z[:whole], groups[:whole])


# Roth et al. 2020 and open-metric-learning; here more is not always worse.


def pi_ratio(z: Array, y: Array) -> float:
    """Roth et al.: mean cosine distance of pairs of a class, over that of class means."""
    unit = z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-300)
    classes = [unit[y == c] for c in np.unique(y)]
    means = np.stack([rows.mean(0) for rows in classes])
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-300)
    inside = np.mean([_mean_gap(rows) for rows in classes if len(rows) > 1])
    between = _mean_gap(means)
    return float(inside / between) if between > 0 else math.nan


def _mean_gap(unit: Array) -> float:
    return float((1 - unit @ unit.T)[np.triu_indices(len(unit), 1)].mean())


def rho_spectrum(z: Array) -> float:
    """Roth et al.: KL(uniform || σ/|σ|₁) over the singular values of the rows, not centred."""
    values = np.linalg.svd(z, compute_uv=False)
    if values[-1] <= max(z.shape) * np.finfo(np.float64).eps * values[0]:
        return math.inf
    return float(-np.log(len(values) * values / values.sum()).mean())


def pcf(z: Array) -> float:
    """open-metric-learning: the share of the axes that hold 90 % of the variance."""
    return principal_axes(z, 0.9 + 1e-12) / z.shape[1]
