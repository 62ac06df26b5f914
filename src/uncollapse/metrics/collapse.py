"""Published figures of collapse: neural collapse, directions, class density, spectrum, modes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from uncollapse._base.arrays import (
    Array,
    ArrayLike,
    ClassLayout,
    class_ids,
    numbers64,
    points,
    points64,
)
from uncollapse._base.check import check_bool, check_int, check_number
from uncollapse._base.result import Result
from uncollapse.distances import binary_scale, pairwise_distances, unit_rows
from uncollapse.metrics.ranking import sample_queries
from uncollapse.metrics.retrieval_scores import retrieval

_BLOCK = 1024  # rows compared with all others at a time
_ZERO = 1e-14  # eigenvalues below this share of the largest are rounding


def class_means(x: ArrayLike, labels: ArrayLike) -> tuple[Array, Array, ClassLayout, float]:
    """The mean of each class, and rows `[N, dim]` minus the mean of theirs; classes, and the unit.

    Both are of rows minus their mean, divided by the unit, a power of two: squares stay in range,
    ratios are unchanged, and rows that all coincide are exactly 0.
    """
    rows, unit = _centred(x)
    layout = ClassLayout.of(labels, len(rows))
    sums = np.add.reduceat(rows[layout.order], layout.starts, axis=0)
    means = sums / layout.counts[:, None]
    return means, rows - means[layout.ids], layout, unit


def _centred(x: ArrayLike) -> tuple[Array, float]:
    """Centred rows divided by a power of two that keeps squares in range, and that power."""
    rows = points64(x)
    unit = binary_scale(float(np.abs(rows).max()))
    rows = rows / unit
    rows = rows - rows[0]  # first: the mean of equal numbers need not be that number
    return rows - rows.mean(axis=0), unit


def nc1(x: ArrayLike, labels: ArrayLike) -> float:
    """Within-class over between-class variability, tr(Σ_W Σ_B⁺)/C: Papyan, Han & Donoho 2020.

    As there, Σ_W weights classes by their size, Σ_B weights them equally. 0 when every class is a
    point; infinite when all class means coincide.

    >>> round(nc1([[0.0], [1.0], [4.0], [5.0]], [0, 0, 1, 1]), 6)
    0.03125
    """
    means, residuals, _, _ = class_means(x, labels)
    left, values, _ = np.linalg.svd((means - means.mean(axis=0)).T, full_matrices=False)
    kept = values > max(means.shape) * 1e-15 * (values[0] if len(values) else 0.0)
    if not kept.any():
        return math.inf
    between = values[kept] ** 2 / len(means)
    along = ((residuals @ left[:, kept]) ** 2).mean(axis=0)
    return float((along / between).sum() / len(means))


def cdnv(x: ArrayLike, labels: ArrayLike) -> float:
    """Class-distance normalised variance, mean over pairs of classes: Galanti et al. 2022.

    (Var_a + Var_b) / (2 |μ_a - μ_b|²). 0 when every class is a point; infinite when two class means
    coincide and a class is not a point; NaN for one class.

    >>> cdnv([[0.0], [1.0], [4.0], [5.0]], [0, 0, 1, 1])
    0.015625
    """
    means, residuals, layout, _ = class_means(x, labels)
    variance = np.bincount(layout.ids, (residuals**2).sum(axis=1)) / layout.counts
    total, pairs = 0.0, len(means) * (len(means) - 1) // 2
    for i in range(1, len(means)):
        apart = ((means[:i] - means[i]) ** 2).sum(axis=1)
        both = variance[:i] + variance[i]
        # Two classes that are the same point have no variance: 0/0 is 0 here.
        safe = np.where(apart > 0, apart, 1.0)
        ratio = np.where(apart > 0, both / (2 * safe), np.where(both > 0, np.inf, 0.0))
        total += float(ratio.sum())
    return total / pairs if pairs else math.nan


def directions(x: ArrayLike, name: str = "x", *, min_rows: int = 1) -> Array:
    """`unit_rows` in float64, for rows of any scale: the square of 1e200 would overflow."""
    rows = torch.from_numpy(points64(x, name, min_rows=min_rows))
    largest = rows.abs().amax(dim=1, keepdim=True)
    return unit_rows(rows / torch.where(largest > 0, largest, 1.0)).numpy()


@dataclass(frozen=True)
class Anisotropy:
    """Mean cosine over all pairs, and quantiles of the cosines by level."""

    mean: float
    quantiles: dict[float, float]


def alignment(x: ArrayLike, labels: ArrayLike) -> float:
    """Alignment of Wang & Isola 2020, α = 2: mean |u - v|² over positive pairs on the sphere.

    Positive pairs are all pairs of rows with the same label, equally weighted; two views of a
    sample are two rows with its number as label. Rows are divided by their norms. 0 where each
    class is one direction; 2 where directions are independent of the class. NaN where no class has
    two rows.

    >>> alignment([[1.0, 0.0], [0.0, 3.0], [2.0, 0.0]], [0, 0, 1])
    2.0
    """
    _, residuals, layout, unit = class_means(directions(x), labels)
    # The sum over the pairs of a class is n times its sum of squares about the mean.
    squares = float((residuals**2).sum(axis=1) @ layout.counts[layout.ids])
    pairs = int((layout.counts * (layout.counts - 1) // 2).sum())
    return squares * unit * unit / pairs if pairs else math.nan


def uniformity(x: ArrayLike, *, t: float = 2.0, sample: int | None = None, seed: int = 0) -> float:
    """Uniformity of Wang & Isola 2020: log of the mean of exp(-t |u - v|²) over all pairs.

    Rows are divided by their norms. 0 where all are one direction; uniform on a sphere of many
    dimensions about -2t. `sample` uses that many rows, chosen by `seed`, instead of all: the time
    grows with the square of their number.

    >>> uniformity([[1.0, 0.0], [3.0, 0.0]]), uniformity([[1.0, 0.0], [-1.0, 0.0]])
    (0.0, -8.0)
    """
    check_number("t", t, 0.0)
    unit = torch.from_numpy(directions(x, min_rows=2))
    unit = unit[sample_queries(len(unit), sample, seed)]
    parts = []
    for low in range(0, len(unit), _BLOCK):
        squares = pairwise_distances(unit[low : low + _BLOCK], unit[low:], squared=True)
        once = torch.ones_like(squares, dtype=torch.bool).triu(1)
        parts.append(torch.logsumexp(-t * squares[once], 0).item())
    pairs = len(unit) * (len(unit) - 1) / 2
    return float(np.logaddexp.reduce(parts)) - math.log(pairs)


def anisotropy(
    x: ArrayLike,
    *,
    quantiles: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95),
    sample: int | None = 2048,
    seed: int = 0,
) -> Anisotropy:
    """Mean cosine between different rows, the anisotropy of Ethayarajh 2019, and its quantiles.

    The mean is that of all pairs, in O(N dim). The quantiles take the pairs of `sample` rows chosen
    by `seed`; of all rows with None. About 0 for directions all round, 1 where all rows are one
    direction: a cone. Independent of scale, not of position. A row of zeros has cosine 0 with all
    others.

    >>> result = anisotropy([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]], quantiles=(0.5, 1.0))
    >>> round(result.mean, 6), result.quantiles
    (0.333333, {0.5: 0.0, 1.0: 1.0})
    """
    levels = [
        check_number("quantiles", level, 0.0, 1.0) for level in numbers64(quantiles, "quantiles")
    ]
    unit = directions(x, min_rows=2)
    some = unit[sample_queries(len(unit), sample, seed)]
    cosines = _product(some, some.T)[np.triu(np.ones((len(some), len(some)), bool), 1)]
    values = np.quantile(np.minimum(cosines, 1.0), levels)
    total, n = unit.sum(axis=0), len(unit)
    mean = float(total @ total - (unit**2).sum()) / (n * (n - 1))
    return Anisotropy(min(mean, 1.0), dict(zip(levels, values.tolist(), strict=True)))


@dataclass(frozen=True)
class Spectrum:
    """Singular values of the centred rows, largest first, and the axes they belong to.

    `axes` `[dim, k]` is None where there are fewer rows than columns: it is not needed there.
    """

    values: Array
    axes: Array | None
    rows: int

    @property
    def shares(self) -> Array:
        """Share of the variance on each axis; all 0 for a single point."""
        squares = (self.values / (self.values[0] or 1.0)) ** 2
        total = squares.sum()
        return squares / total if total > 0 else squares


def spectrum(x: ArrayLike) -> Spectrum:
    """Singular values of the rows about their mean, in float64, by the smaller of both products.

    >>> spectrum([[1.0, 0.0], [-1.0, 0.0]]).values.round(6).tolist()
    [1.414214, 0.0]
    """
    rows, unit = _centred(x)
    scale = float(np.abs(rows).max()) or 1.0
    rows = rows / scale
    # By torch, as the product: in a training loop NumPy's own threads would wait for torch's.
    if len(rows) <= rows.shape[1]:
        values = torch.linalg.eigvalsh(torch.from_numpy(_product(rows, rows.T)))
        squares, axes = values.numpy()[::-1], None
    else:
        values, vectors = torch.linalg.eigh(torch.from_numpy(_product(rows.T, rows)))
        squares, axes = values.numpy()[::-1], vectors.numpy()[:, ::-1]
    squares = np.where(squares > _ZERO * max(squares[0], 0.0), squares, 0.0)
    return Spectrum(np.sqrt(squares) * scale * unit, axes, len(rows))


def _product(a: Array, b: Array) -> Array:
    product: Array = (torch.from_numpy(a) @ torch.from_numpy(b)).numpy()
    return product


def effective_rank(x: ArrayLike | Spectrum) -> float:
    """Exponential of the entropy of the singular values (RankMe, Garrido et al. 2023), centred.

    Uncentred, a point far from the origin would give 1 whatever is inside. 0 for a single point.

    >>> round(effective_rank([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), 6)
    2.0
    """
    return smooth_rank((x if isinstance(x, Spectrum) else spectrum(x)).values, 0.0)


def principal_axes(x: ArrayLike | Spectrum, share: float = 0.99) -> int:
    """Number of principal axes that hold `share` of the variance; 0 for a single point.

    Less sensitive to noise in many dimensions than `effective_rank`; verdicts use this one.

    >>> principal_axes([[1.0, 0.01], [-1.0, 0.0], [0.0, 0.0]])
    1
    """
    check_number("share", share, 0.0, 1.0)
    cumulated = np.cumsum((x if isinstance(x, Spectrum) else spectrum(x)).shares)
    if cumulated[-1] == 0.0:
        return 0
    return int(np.searchsorted(cumulated, share * (1 - 1e-12)) + 1)


def rankme(x: ArrayLike, *, eps: float = 1e-7) -> float:
    """RankMe of Garrido et al. 2023: exp(-Σ p log p), p = σ/|σ|₁ + eps, of the rows as given.

    Not centred: a cone, or a set far from the origin, has about 1 whatever is inside; the centred
    one is `effective_rank`. From about 1 (a line) to min(N, dim); independent of scale. All rows
    one point: 1 (with eps a little more); all rows at the origin: 0.

    >>> round(rankme([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]), 4)
    2.0
    """
    check_number("eps", eps, 0.0, 1.0)
    rows = points64(x)
    unit = binary_scale(float(np.abs(rows).max()))  # squares stay in range
    values: Array = np.linalg.svd(rows / unit, compute_uv=False)
    rounding = max(rows.shape) * np.finfo(np.float64).eps * values[0]
    return smooth_rank(np.where(values > rounding, values, 0.0), eps)


def smooth_rank(values: Array, eps: float) -> float:
    """exp of the entropy of the values divided by their sum, plus eps; 0 if all are 0."""
    total = float(values.sum())
    if total == 0.0:
        return 0.0
    shares = values / total + eps
    shares = shares[shares > 0]
    return float(np.exp(-(shares * np.log(shares)).sum()))


# How many modes each class keeps: the number that class collapse (EPS §3) drives to one.

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


@dataclass(frozen=True, repr=False)
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
        """Mean number of modes over the classes where it could be counted."""
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
        values = directions(x) if check_bool("normalize", normalize) else points64(x)
        for c in range(len(modes)):
            if layout.counts[c] >= _SMALLEST:
                generator = np.random.default_rng((check_int("seed", seed, 0), c))
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
    lie below every sample by more than the largest gap so far, and by 4 standard deviations.
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
    """The points of each mode after one split; all points together if there is one mode."""
    z, spread = _principal(x)
    if len(x) < 2 * smallest or not len(spread):
        return [x]
    null = generator.standard_normal((_SURROGATES, len(x), len(spread))) * spread
    least = 1e-12 * float((z**2).sum())
    best, labels, k, tried = 0.0, None, 1, 1
    most = min(len(x) // smallest, len(np.unique(z, axis=0)))  # no more modes than can be counted
    while tried < min(k + _PATIENCE, most):
        tried += 1
        inertia, assigned = _best_kmeans(z, tried, generator)
        own = np.log(max(inertia, least))
        logs = []
        for sample in null:
            logs.append(np.log(max(_best_kmeans(sample, tried, generator)[0], least)))
            if own + best >= logs[-1]:
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


def _best_kmeans(x: Array, k: int, generator: np.random.Generator) -> tuple[float, Array]:
    """Smallest inertia of a few k-means runs, and the labels of that run.

    Uses SciPy: for a few hundred points it is ten times faster than `kmeans`.
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
    """Rows of each cluster, after joining clusters with no valley between them, nearest first."""
    groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    while True:
        gaps = pairwise_distances(np.array([z[group].mean(0) for group in groups])).numpy()
        pairs = ((i, j) for i in range(len(groups)) for j in range(i))
        for i, j in sorted(pairs, key=lambda pair: (gaps[pair], pair)):
            if _valley(z[groups[i]], z[groups[j]]) > _VALLEY:
                union = np.sort(np.concatenate([groups.pop(i), groups.pop(j)]))
                groups.append(union)
                break
        else:
            return groups


def _valley(a: Array, b: Array) -> float:
    """Lowest density between two peaks, relative to the lower peak, on the line of centres."""
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
    # Plus one standard deviation and one point, so that a few empty bins are no valley.
    bottom = int(count[peak_low : peak_high + 1].min())
    return (bottom + np.sqrt(bottom) + 1) / least if least else 1.0
