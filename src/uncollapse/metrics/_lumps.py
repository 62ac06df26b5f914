"""How many lumps a cloud of points has: a gap statistic against Gaussian samples, with valleys."""

from __future__ import annotations

import warnings

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse.distances import pairwise_distances

__all__ = ["count_lumps"]

_AXES = 16  # principal axes kept; lumps that are apart show in the first ones
_SURROGATES = 12
_SIGMAS = 4.0  # how far below the surrogates' mean (of the log) the data must be
_PATIENCE = 5  # numbers of clusters tried beyond the best so far
_STARTS, _STEPS = 3, 12
_VALLEY = 0.5  # density between two lumps, as a share of the lesser peak
_WINDOW = 1.0  # in units of half the distance between the two centres
_LOOK_AGAIN = 16  # a lump with fewer points is not looked at alone
_SHARE = 0.05  # a smaller group is not a lump


def count_lumps(x: Array, generator: np.random.Generator) -> int:
    """Number of lumps, at least 1.

    For k = 2, 3, ... clusters, gap(k) is the mean logarithm of the k-means inertia of Gaussian
    samples with the data's size and covariance, minus that of the data. A k counts only if the data
    lie below every sample, by 4 standard deviations; the largest gap wins, none means one lump.
    Clusters with no valley between them (density along the line of their centres above half of the
    lesser peak) are joined, and those below 5 % of the points (or 3) are dropped. In high dimension
    the samples are what keeps k-means from cutting any cloud in pieces; in low dimension the
    valley is what keeps flat but single lumps whole. Each lump found is then looked at alone.
    """
    smallest = max(3, int(np.ceil(_SHARE * len(x))))
    waiting, found = [x], 0
    while waiting:
        groups = _groups(waiting.pop(), smallest, generator)
        again = [group for group in groups if len(groups) > 1 and len(group) >= _LOOK_AGAIN]
        found += len(groups) - len(again)
        waiting.extend(again)
    return max(found, 1)


def _groups(x: Array, smallest: int, generator: np.random.Generator) -> list[Array]:
    """The lumps of one look; the points themselves if there is one."""
    z, spread = _principal(x)
    if len(x) < 2 * smallest or not len(spread):
        return [x]
    null = generator.standard_normal((_SURROGATES, len(x), len(spread))) * spread
    least = 1e-12 * float((z**2).sum())
    best, labels, k = 0.0, None, 1
    tried = 1
    most = min(len(x) // 2, len(np.unique(z, axis=0)))  # no more clusters than different points
    while tried < min(k + _PATIENCE, most):
        tried += 1
        inertia, assigned = _split(z, tried, generator)
        logs = []
        for sample in null:
            logs.append(np.log(max(_split(sample, tried, generator)[0], least)))
            if np.log(max(inertia, least)) >= logs[-1]:
                break
        else:
            gap = float(np.mean(logs) - np.log(max(inertia, least)))
            if gap > max(best, _SIGMAS * float(np.std(logs))):
                best, labels, k = gap, assigned, tried
    if labels is None:
        return [x]
    groups = _join(z, labels)
    kept = [x[group] for group in groups if len(group) >= smallest]
    return kept if len(kept) > 1 else [x]


def _principal(x: Array) -> tuple[Array, Array]:
    """Coordinates along the principal axes, and the standard deviation along each."""
    z = x - x.mean(0)
    scale = np.abs(z).max()
    if scale == 0.0:
        return z, np.empty(0)
    left, values, _ = np.linalg.svd(z / scale, full_matrices=False)
    axes = min(_AXES, int((values > 1e-6 * values[0]).sum()))
    return left[:, :axes] * values[:axes], values[:axes] / np.sqrt(len(x))


def _split(x: Array, k: int, generator: np.random.Generator) -> tuple[float, Array]:
    """Least inertia of a few k-means runs, and its labels.

    SciPy's: for a few hundred points it takes a tenth of the time of `kmeans`, made for many.
    """
    from scipy.cluster.vq import kmeans2, vq

    best, labels = np.inf, np.zeros(len(x), np.int64)
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):  # fewer points than clusters
        warnings.simplefilter("ignore", UserWarning)  # an empty cluster
        for _ in range(_STARTS):
            centres, _ = kmeans2(x, k, iter=_STEPS, minit="++", seed=generator)
            assigned, gap = vq(x, centres)
            inertia = float((gap**2).sum())
            if inertia < best:
                best, labels = inertia, assigned
    return best, labels


def _join(z: Array, labels: Array) -> list[Array]:
    """Rows of each cluster, those without a valley between them joined; nearest pairs first."""
    groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    apart: set[tuple[int, int]] = set()
    while len(groups) > 1:
        middles = np.array([z[group].mean(0) for group in groups])
        gaps = pairwise_distances(middles).numpy()
        order = sorted(
            (gaps[i, j], i, j)
            for i in range(len(groups))
            for j in range(i)
            if (groups[i][0], groups[j][0]) not in apart
        )
        if not order:
            break
        _, i, j = order[0]
        if _valley(z[groups[i]], z[groups[j]]) > _VALLEY:
            union = np.sort(np.concatenate([groups[i], groups[j]]))
            groups = [group for k, group in enumerate(groups) if k not in (i, j)] + [union]
            apart = {pair for pair in apart if union[0] not in pair}
        else:
            apart |= {(groups[i][0], groups[j][0]), (groups[j][0], groups[i][0])}
    return groups


def _valley(a: Array, b: Array) -> float:
    """Lowest density between the two peaks, over the lesser peak, along the centres' line."""
    high, low = a.mean(0), b.mean(0)
    axis = high - low
    if not axis.any():
        return 1.0
    # The centres are at -1 and 1.
    t = np.sort((np.concatenate([a, b]) - (high + low) / 2) @ axis / (axis @ axis) * 2)
    grid = np.linspace(-2.0, 2.0, 161)
    count = np.searchsorted(t, grid + _WINDOW / 2, "right") - np.searchsorted(t, grid - _WINDOW / 2)
    peak_low, peak_high = int(count[:80].argmax()), 81 + int(count[81:].argmax())
    least = int(min(count[peak_low], count[peak_high]))
    # One standard deviation and one point more, so that a few empty places are no valley.
    bottom = int(count[peak_low : peak_high + 1].min())
    return (bottom + np.sqrt(bottom) + 1) / least if least else 1.0
