"""What other libraries compute to notice a collapse, as their sources have it; more is worse.

MONAI: `monai/metrics/embedding_collapse.py`. stable-pretraining: `callbacks/rankme.py`, `lidar.py`.
lightly: `utils/debug.py`.
"""

from __future__ import annotations

import math

import numpy as np
from sklearn.metrics import silhouette_score

from uncollapse.metrics.collapse import class_means, principal_axes, smooth_rank, spectrum

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


# Of self-supervised learning.


def alpha_req(x: Array, *, ranks: tuple[int, int] = (4, 100)) -> float:
    """α-ReQ of Agrawal et al. 2022: the exponent of λ_j ∝ j^-α, of the covariance's eigenvalues.

    A line through (log j, log λ_j) with weights 1/j, as in the authors' code (after Stringer et al.
    2019), over the ranks j from the first to the last of `ranks`, both included, as far as there
    are axes: min(N - 1, dim). Near 1 is what they find best; 0 is isotropic. Independent of scale
    and position. Infinite where an eigenvalue of that range is 0 (below 1e-14 of the largest), so
    for rows that are one point; NaN where there are fewer than two axes to fit.

    >>> x = np.diag([1.0, 0.5, 1 / 3, 0.25])
    >>> round(alpha_req(np.concatenate([x, -x]), ranks=(1, 4)), 6)
    2.0
    """
    first, last = ranks
    axes = spectrum(x)
    last = min(last, axes.rows - 1, len(axes.values))
    if last <= first:
        return math.nan
    values = axes.values[first - 1 : last]
    if values[-1] == 0.0:
        return math.inf
    rank = np.arange(first, last + 1, dtype=np.float64)
    weight = 1 / rank
    at, height = np.log(rank), 2 * np.log(values / values[0])  # eigenvalues are squares
    at = at - np.average(at, weights=weight)
    return float(-(weight * at * height).sum() / (weight * at * at).sum()) + 0.0


def lidar(x: Array, labels: Array, *, delta: float = 1e-4, eps: float = 1e-8) -> float:
    """LiDAR: exp of the entropy of the eigenvalues of Σ_W^-½ Σ_B Σ_W^-½, (1) to (4) there.

    There a class is a sample and its rows are augmentations of it; here the classes are those of
    `labels`, which the paper's definition allows. Σ_B is the covariance of the class means, Σ_W the
    mean over classes of two rows or more of their unbiased covariances, plus `delta` times the
    identity; p = λ/|λ|₁ + eps. At most about min(C - 1, dim).

    Independent of position, but `delta` is in squared units of x: an embedding whose spread inside
    classes is below √delta gives the rank of its class means alone. 0 where all class means
    coincide, so for rows that are one point and for one class.

    >>> x = np.repeat([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], 2, axis=0)
    >>> round(lidar(x, [0, 0, 1, 1, 2, 2]), 4)
    2.0
    """
    means, residuals, layout, unit = class_means(x, labels)
    sizes = layout.counts
    several = sizes > 1
    weight = np.where(several, 1 / (np.maximum(sizes - 1, 1) * max(int(several.sum()), 1)), 0.0)
    weighted = residuals * np.sqrt(weight[layout.ids])[:, None]
    inside, axes = np.linalg.eigh(weighted.T @ weighted)
    inside = np.maximum(inside, 0.0)
    # delta is in the units of x, these rows are x over `unit`; below 1e-30 of them is rounding.
    more = max(delta / unit / unit, 1e-30)
    within = inside + more if more < 1 else inside / more + 1  # the scale of λ does not count
    centred = means - means.mean(axis=0)
    values = np.linalg.svd((centred @ axes) / np.sqrt(within), compute_uv=False) ** 2
    width = means.shape[1]
    return smooth_rank(np.pad(values[:width], (0, max(width - len(values), 0))), eps)
