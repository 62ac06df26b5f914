"""How many modes each class keeps: the number that class collapse (EPS §3) drives to one."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from uncollapse._base.arrays import Array, ArrayLike, ClassLayout, class_ids, points, points64
from uncollapse._base.check import check_int
from uncollapse.distances import pairwise_distances
from uncollapse.metrics.collapse import directions
from uncollapse.metrics.result import Result
from uncollapse.metrics.retrieval_scores import retrieval

_SMALLEST = 8  # samples below which the modes of a class cannot be counted
_AXES = 16  # principal axes kept; modes that are apart show in the first ones
_SURROGATES = 12
_SIGMAS = 4.0  # how far below the surrogates' mean (of the log) the data must be
_PATIENCE = 5  # numbers of clusters tried beyond the best so far
_STARTS, _STEPS = 3, 12
_VALLEY = 0.5  # density between two modes, as a share of the lesser peak
_WINDOW = 1.0  # in units of half the distance between the two centres
_SPLIT_FROM = 16  # a mode with fewer points is not split again
_SHARE = 0.05  # a smaller cluster is not a mode


@dataclass(frozen=True)
class ModesResult(Result):
    """Modes of each class, NaN where they cannot be counted.

    With fine labels `fine_classes` counts those with at least two samples, and `separation` is in
    [0, 1]: 0 for fine classes mixed as by chance, 1 for fine classes wholly apart.
    """

    classes: Array
    sizes: Array
    modes: Array
    fine_classes: Array | None = None
    separation: Array | None = None

    @property
    def mean(self) -> float:
        """Mean number of modes over the classes where it is known."""
        return self._known_mean(self.modes)

    def to_dict(self) -> dict[str, Any]:
        """Mean modes, fine classes and separation; how many classes are unknown."""
        numbers: dict[str, Any] = {
            "modes_per_class": self.mean,
            "classes": len(self.classes),
            "classes_unknown": int(np.isnan(self.modes).sum()),
        }
        if self.fine_classes is not None and self.separation is not None:
            numbers["fine_classes_per_class"] = self._known_mean(self.fine_classes)
            numbers["separation"] = self._known_mean(self.separation)
        return numbers

    def _known_mean(self, values: Array) -> float:
        known = values[~np.isnan(self.modes)]
        return float(known.mean()) if len(known) else float("nan")


def modes_per_class(
    x: ArrayLike,
    labels: ArrayLike,
    fine_labels: ArrayLike | None = None,
    *,
    normalize: bool = False,
    max_points: int = 300,
    seed: int = 0,
) -> ModesResult:
    """Count the modes that each class keeps in the embedding (of rows of norm 1 if `normalize`).

    **With `fine_labels`**: the fine classes still apart. The purity of a fine class is the share of
    its samples whose nearest neighbour inside the class has the same fine label (a tie counts as
    another); corrected for chance it is (purity - c)/(1 - c), c = (size - 1)/(class size - 1). A
    fine class with a corrected purity of at least 1/2 is kept. The number of modes is that of
    kept fine classes, plus one if some are not kept: those are taken as merged. `separation` is
    the mean corrected purity, at least 0. A fine label names a fine class inside its class only.

    **Without**: an estimate. k-means with 2, 3, ... clusters has to beat Gaussian samples of the
    same covariance, and clusters with no valley in the density between them are joined. One mode of
    any usual shape gives 1, in any dimension; modes that are apart are counted if they hold 5 % of
    the class (and 3 samples); modes that overlap are not seen, and in high dimension few samples
    show only modes that are far apart. Needs 8 samples per class; above `max_points` a random
    sample of the class is used.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x = np.r_[rng.normal(0, 1, (50, 4)), rng.normal(9, 1, (50, 4)), rng.normal(0, 1, (50, 4))]
    >>> modes_per_class(x, [0] * 100 + [1] * 50).modes.tolist()
    [2.0, 1.0]
    """
    check_int("max_points", max_points, _SMALLEST)
    n = len(points(x))
    layout = ClassLayout.of(labels, n)
    modes = np.full(len(layout.classes), np.nan)
    if fine_labels is None:
        values = directions(x) if normalize else points64(x)
        for c in range(len(modes)):
            if layout.counts[c] >= _SMALLEST:
                generator = np.random.default_rng((seed, c))
                rows = layout.members(c)
                if len(rows) > max_points:
                    rows = np.sort(generator.choice(rows, max_points, replace=False))
                modes[c] = _count_modes(values[rows], generator)
        return ModesResult(layout.classes, layout.counts, modes)
    fine, _ = class_ids(fine_labels, n, "fine_labels")
    tensor = points(x).detach()
    fine_classes, separation = np.zeros(len(modes), np.int64), np.full(len(modes), np.nan)
    for c in range(len(modes)):
        rows = layout.members(c)
        purity = _corrected_purity(tensor[rows], fine[rows], normalize)
        fine_classes[c] = len(purity)
        if len(purity):
            kept = purity >= 0.5
            modes[c] = kept.sum() + (not kept.all())
            separation[c] = max(float(purity.mean()), 0.0)
    return ModesResult(layout.classes, layout.counts, modes, fine_classes, separation)


def _corrected_purity(x: Any, fine: Array, normalize: bool) -> Array:
    """Corrected nearest-neighbour purity of each fine class with two samples or more."""
    kinds, ids, sizes = np.unique(fine, return_inverse=True, return_counts=True)
    if sizes.max() < 2:
        return np.empty(0)
    if len(kinds) == 1:
        return np.ones(1)
    hit = retrieval(x, ids, ks=(1,), normalize=normalize, progress=False).per_query["recall@1"]
    several = sizes >= 2
    purity = np.bincount(ids, np.nan_to_num(hit))[several] / sizes[several]
    chance = (sizes[several] - 1) / (len(fine) - 1)
    return np.asarray((purity - chance) / (1 - chance))


def _count_modes(x: Array, generator: np.random.Generator) -> int:
    """Number of modes, at least 1: a gap statistic against Gaussian samples, with valleys.

    For k = 2, 3, ... clusters, gap(k) is the mean logarithm of the k-means inertia of Gaussian
    samples with the data's size and covariance, minus that of the data. A k counts only if the data
    lie below every sample, by 4 standard deviations; the largest gap wins, none means one mode.
    Clusters with no valley between them (density along the line of their centres above half of the
    lesser peak) are joined, and those below 5 % of the points (or 3) are dropped. In high dimension
    the samples are what keeps k-means from cutting any cloud in pieces; in low dimension the
    valley is what keeps flat but single modes whole. Each mode is then split again by itself.
    """
    smallest = max(3, int(np.ceil(_SHARE * len(x))))
    waiting, modes = [x], 0
    while waiting:
        groups = _modes(waiting.pop(), smallest, generator)
        again = [group for group in groups if len(groups) > 1 and len(group) >= _SPLIT_FROM]
        modes += len(groups) - len(again)
        waiting.extend(again)
    return max(modes, 1)


def _modes(x: Array, smallest: int, generator: np.random.Generator) -> list[Array]:
    """The points of each mode, after one split; all points if there is one."""
    z, spread = _principal(x)
    if len(x) < 2 * smallest or not len(spread):
        return [x]
    null = generator.standard_normal((_SURROGATES, len(x), len(spread))) * spread
    least = 1e-12 * float((z**2).sum())
    best, labels, k, tried = 0.0, None, 1, 1
    most = min(len(x) // 2, len(np.unique(z, axis=0)))  # no more clusters than different points
    while tried < min(k + _PATIENCE, most):
        tried += 1
        inertia, assigned = _split(z, tried, generator)
        own = np.log(max(inertia, least))
        logs = []
        for sample in null:
            logs.append(np.log(max(_split(sample, tried, generator)[0], least)))
            if own >= logs[-1]:
                break
        else:
            gap = float(np.mean(logs) - own)
            if gap > max(best, _SIGMAS * float(np.std(logs))):
                best, labels, k = gap, assigned, tried
    if labels is None:
        return [x]
    kept = [x[group] for group in _join(z, labels) if len(group) >= smallest]
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
