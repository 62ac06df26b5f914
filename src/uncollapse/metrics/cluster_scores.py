"""Clustering quality: NMI, NMI+ (EPS §5.1, more clusters than classes), AMI and pairwise F1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from uncollapse._base.arrays import Array, ArrayLike, class_ids, points
from uncollapse._base.check import InputError, check_int
from uncollapse.metrics.centroids import kmeans
from uncollapse.metrics.result_table import Result

__all__ = ["ClusteringResult", "clustering", "normalized_mutual_information", "pairwise_f1"]


@dataclass(frozen=True, kw_only=True)
class ClusteringResult(Result):
    """Agreement of a k-means clustering with the classes; `ami` is None unless asked for.

    `clusters` were asked for; `clusters_used` are not empty, fewer only when the points have fewer
    distinct values.
    """

    nmi: float
    ami: float | None = None
    f1: float
    clusters: int
    clusters_used: int
    classes: int
    inertia: float


def clustering(
    x: ArrayLike,
    labels: ArrayLike,
    clusters: int | None = None,
    *,
    multiplier: int = 1,
    restarts: int = 3,
    normalize: bool = False,
    ami: bool = False,
    init: str = "auto",
    max_iter: int = 100,
    seed: int = 0,
) -> ClusteringResult:
    """Cluster the points by k-means and compare with the labels.

    `clusters` defaults to `multiplier` times the number of classes: 1 gives NMI, 10 the NMI+ of
    EPS Table 2, 30 that of Table 3. NMI rewards class collapse; NMI+ lets a class keep several
    modes. AMI is corrected for chance and slow for many clusters, so on request only. `f1` counts
    pairs, as in the metric-learning literature (Oh Song et al.): see `pairwise_f1`.

    >>> result = clustering([[0.0], [0.1], [5.0], [5.1]], ["a", "a", "b", "b"])
    >>> result.nmi, result.f1, result.clusters
    (1.0, 1.0, 2)
    """
    values = points(x).detach().cpu()
    ids, classes = class_ids(labels, len(values))
    check_int("multiplier", multiplier)
    if clusters is None:
        clusters = len(classes) * multiplier
        if clusters > len(values):
            given = f"{multiplier} (× {len(classes)} classes = {clusters} clusters)"
            raise InputError("multiplier", given, f"at most {len(values)} clusters, one per row")
    elif multiplier != 1:
        raise InputError("multiplier", multiplier, "1 when clusters is given")
    run = kmeans(
        values, clusters, init=init, restarts=restarts, max_iter=max_iter, normalize=normalize,
        seed=seed,
    )  # fmt: skip
    return ClusteringResult(
        nmi=normalized_mutual_information(ids, run.labels),
        f1=pairwise_f1(ids, run.labels),
        clusters=clusters,
        clusters_used=len(np.unique(run.labels)),
        classes=len(classes),
        inertia=run.inertia,
        ami=_adjusted(ids, run.labels) if ami else None,
    )


def normalized_mutual_information(labels: ArrayLike, clusters: ArrayLike) -> float:
    """Mutual information over the mean of the two entropies; 1.0 if both are one group.

    >>> normalized_mutual_information([0, 0, 1, 1], [5, 5, 7, 7])
    1.0
    """
    both, rows, columns = _counts(labels, clusters)
    total = _entropy(rows) + _entropy(columns)
    if total == 0.0:
        return 1.0
    return max(0.0, 2 * (total - _entropy(both)) / total)


def pairwise_f1(labels: ArrayLike, clusters: ArrayLike) -> float:
    """F1 over pairs of points: predicted if they share a cluster, true if they share a class.

    P = pairs sharing both / pairs sharing a cluster,
    R = pairs sharing both / pairs sharing a class,
    F1 = 2PR/(P + R); 0 if no pair shares both.

    >>> pairwise_f1([0, 0, 1, 1], [0, 0, 0, 1])
    0.4
    """
    # Ordered pairs that share both, a class, a cluster; F1 = 2 hits / (true + predicted).
    hit, true, predicted = (int((n * (n - 1)).sum()) for n in _counts(labels, clusters))
    return 2 * hit / (true + predicted) if hit else 0.0


def _counts(labels: ArrayLike, clusters: ArrayLike) -> tuple[Array, Array, Array]:
    """How many points each class and cluster share, where any; of each class; of each cluster."""
    ids = class_ids(labels, None)[0]
    groups = class_ids(clusters, len(ids), "clusters")[0]
    _, both = np.unique(ids * (groups.max() + 1) + groups, return_counts=True)
    return both, np.bincount(ids), np.bincount(groups)


def _entropy(counts: Array) -> float:
    """Of a partition with so many points in each part, in nats."""
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log(share)).sum())


def _adjusted(ids: Array, clusters: Array) -> float:
    from sklearn.metrics import adjusted_mutual_info_score  # a second to load

    return float(adjusted_mutual_info_score(ids, clusters))
