"""Verification: are these two the same? ROC, EER, TAR at FAR, and accuracy as LFW has it.

Inside, u is a distance, or a score with its sign turned: less is more alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, ClassLayout, class_ids, label_array, points64
from uncollapse._base.check import InputError, check_bool, check_int, check_number
from uncollapse._base.progress import ProgressOption, Report, progress_reporter
from uncollapse._base.result import Result
from uncollapse.distances import paired_distances, pairwise_distances
from uncollapse.metrics.collapse import directions
from uncollapse.metrics.intervals import Interval, bootstrap, finite_numbers, wilson_interval
from uncollapse.metrics.ranking import row_numbers

_FALSE_ACCEPT_RATES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
_ALL_BELOW = 1 << 22  # same pairs up to which each has its own threshold: 130 MB
_GRID = 1 << 20  # thresholds beyond that, at quantiles of the same pairs
_TILE = 1 << 22  # distances at a time: 32 MB
_CHUNK = 1 << 14  # pairs measured at a time where they are listed
_BITS = 52 - 33  # of a float64's fraction that are rounding: products are right to about 1e-10
_INPUTS = "embeddings and labels, embeddings and pairs, or scores and same"


@dataclass(frozen=True)
class RocCurve:
    """Corners of the curve, from the strictest threshold: false and true accept rates.

    `thresholds` are in the result's `unit`; the first, which accepts nothing, is infinite.
    """

    far: Array
    tar: Array
    thresholds: Array


@dataclass(frozen=True, kw_only=True, repr=False)
class VerificationResult(Result):
    """How well a threshold tells pairs of one class from pairs of two.

    A false accept rate (FAR) is the share of different pairs accepted, a true one (TAR) that of
    same pairs. `tar[f]` is the largest TAR at a FAR of at most f, and `thresholds[f]` the
    threshold; both None where there are fewer than 1/f different pairs. `eer` is where the two
    errors are equal. `accuracy` is the best there is, at `accuracy_threshold`, chosen on the pairs
    themselves. `folds` has the accuracy of each fold at the best threshold of the others,
    `fold_accuracy` and `fold_standard_error` are their mean and its standard error, as LFW's
    protocol has them; None without folds. `unit` is what thresholds are of: a `"score"` or
    `"cosine"` (accepted from there up) or a `"distance"` (accepted up to there). `exact` is False
    where `thresholds_tried` are not all there are; the counts at each are exact. `intervals` are
    named as in `to_dict`.
    """

    auc: float
    eer: float
    accuracy: float
    fold_accuracy: float | None = None
    fold_standard_error: float | None = None
    tar: Mapping[float, float | None]
    eer_threshold: float
    accuracy_threshold: float
    thresholds: Mapping[float, float | None]
    unit: str
    same: int
    different: int
    exact: bool
    thresholds_tried: int
    folds: tuple[float, ...] = field(default=(), repr=False)
    intervals: Mapping[str, Interval] = field(default_factory=dict, repr=False, compare=False)
    roc: RocCurve | None = field(default=None, repr=False, compare=False)


def verification(
    embeddings: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    pairs: ArrayLike | None = None,
    same: ArrayLike | None = None,
    scores: ArrayLike | None = None,
    folds: ArrayLike | int | None = None,
    far: Sequence[float] = _FALSE_ACCEPT_RATES,
    normalize: bool = False,
    level: float = 0.95,
    progress: ProgressOption = None,
    seed: int = 0,
) -> VerificationResult:
    """Accept pairs up to a distance (from a score up), for every threshold, and score that.

    Pass `embeddings` and `labels`, for all pairs of rows; or `embeddings` and `pairs`, `[P, 2]` row
    numbers, with `same`, one truth value per pair (or `labels`, which decide it); or `scores`,
    larger for more alike, and `same`. `normalize` scales rows to norm 1: thresholds are cosines.
    `folds` of listed pairs (a number per pair, or how many equal runs of them to make) gives LFW's
    accuracy: of each fold at the threshold that is best on the others.

    Up to 4 million same pairs every one is a threshold, and all figures are exact. Beyond, a
    million thresholds are taken at quantiles of the same pairs. Distances equal to 33 bits are
    tied; of tied pairs all are accepted or none.

    Intervals are Wilson's (DeLong's for the area) for listed pairs, taken as independent. For all
    pairs whole classes are drawn again, for the area and TAR; EER and accuracy have none.

    >>> result = verification(scores=[0.9, 0.8, 0.4, 0.6, 0.1, 0.2], same=[1, 1, 1, 0, 0, 0])
    >>> round(result.auc, 4), round(result.eer, 4), result.accuracy, result.accuracy_threshold
    (0.8889, 0.3333, 0.8333333333333334, 0.8)
    """
    rates = finite_numbers(np.atleast_1d(far), "far", least=1)
    if not ((rates > 0) & (rates < 1)).all():
        raise InputError("far", repr(far), "numbers between 0 and 1")
    check_number("level", level, 0.0, 1.0)
    check_int("seed", seed, 0)
    if scores is not None:
        if any(given is not None for given in (embeddings, labels, pairs)):
            raise InputError.conflict("pass either scores and same, or embeddings")
        u = -finite_numbers(scores, "scores", least=2)
        return _of_list(u, _truth_values(same, len(u)), folds, rates, level, "score")
    if embeddings is None:
        raise InputError("embeddings", "None", _INPUTS)
    read = directions if check_bool("normalize", normalize) else points64
    x = torch.from_numpy(read(embeddings, "embeddings", min_rows=2))
    unit = "cosine" if normalize else "distance"
    if pairs is not None:
        first, second, truth = _listed_pairs(pairs, same, labels, len(x))
        return _of_list(listed_distances(x, first, second), truth, folds, rates, level, unit)
    if labels is None:
        raise InputError("labels", "None", _INPUTS)
    if same is not None or folds is not None:
        raise InputError.conflict("same and folds need listed pairs: pass pairs too, or neither")
    layout = ClassLayout.of(labels, len(x), min_classes=2)
    labelled = _LabelledPairs(x[torch.from_numpy(layout.order)], layout.ids[layout.order])
    with progress_reporter(progress, "verification") as report:
        return _of_all(labelled, rates, level, unit, report, seed)


def _of_list(
    u: Array, same: Array, folds: ArrayLike | int | None, rates: Array, level: float, unit: str
) -> VerificationResult:
    if same.all() or not same.any():
        given = f"{int(same.sum())} same and {int((~same).sum())} different pairs"
        raise InputError("same", given, "at least one of each")
    counts = _Counts.of_lists(u[same], u[~same])
    result = _result(counts, rates, unit, exact=True)
    if folds is not None:
        parts, accuracy = _fold_numbers(folds, same), []
        for fold in np.unique(parts):
            out = parts == fold
            others = _Counts.of_lists(u[~out & same], u[~out & ~same])
            accepted = u[out] <= _best_accuracy(others)[1]
            accuracy.append(float((accepted == same[out]).mean()))
        error = float(np.std(accuracy, ddof=1) / math.sqrt(len(accuracy)))
        mean = float(np.mean(accuracy))
        result = replace(
            result, folds=tuple(accuracy), fold_accuracy=mean, fold_standard_error=error
        )
    both = 4 / (1 / result.same + 1 / result.different)  # the mean of two independent rates
    trials = {"eer": both, "accuracy": result.same + result.different}
    trials |= {f"tar@{rate:g}": result.same for rate in rates}
    intervals = {"auc": _area_interval(counts, result.auc, level)}
    for name, value in result.to_dict().items():
        if name in trials and value is not None:
            intervals[name] = wilson_interval(value, trials[name], level)
    return replace(result, intervals=intervals)


def _of_all(
    pairs: _LabelledPairs, rates: Array, level: float, unit: str, report: Report, seed: int
) -> VerificationResult:
    pair_counts = pairs.sizes * (pairs.sizes - 1) // 2
    many = int(pair_counts.sum())
    if not many:
        given = f"{len(pairs.sizes)} classes of one row"
        raise InputError("labels", given, "a class of two rows at least")
    exact = many <= _ALL_BELOW
    grid = np.concatenate([u for _, u in pairs.same()]) if exact else pairs.drawn(_GRID, seed)
    counts = pairs.counts(np.unique(grid), report)
    # Whole classes are drawn again: the sum of each class over its same pairs.
    accepted = {rate: point for rate in rates if (point := _tar_at(counts, rate)) is not None}
    beyond = 1 - np.r_[0, counts.different.sum(axis=0)] / (2 * counts.different_total)
    sums = {"auc": np.zeros(len(pairs.sizes))}
    sums |= {f"tar@{rate:g}": np.zeros(len(pairs.sizes)) for rate in accepted}
    for c, u in pairs.same():
        sums["auc"][c] += beyond[np.searchsorted(counts.grid, u, "right")].sum()
        for rate, (_, threshold) in accepted.items():
            sums[f"tar@{rate:g}"][c] += np.count_nonzero(u <= threshold)
    kept = pair_counts > 0
    intervals = {
        name: bootstrap(values[kept], pair_counts[kept], level=level)
        for name, values in sums.items()
    }
    return replace(_result(counts, rates, unit, exact=exact), intervals=intervals)


def _result(counts: _Counts, rates: Array, unit: str, *, exact: bool) -> VerificationResult:
    def shown(u: Array | float) -> Array:
        """Thresholds in the caller's unit."""
        u = np.asarray(u)
        if unit == "distance":
            return u
        return np.where(np.isfinite(u), 1 - u * u / 2, -u) if unit == "cosine" else -u

    x, y, at = _corners(counts)
    far, tar = x / counts.different_total, y / counts.same_total
    area = float((np.diff(x).astype(float) * (y[1:] + y[:-1])).sum()) / 2  # ties by half
    error, at_error = _equal_error(far, tar, at)
    best, at_best = _best_accuracy(counts)
    points = {float(rate): _tar_at(counts, rate) for rate in rates}
    return VerificationResult(
        auc=area / (float(x[-1]) * float(y[-1])),
        eer=error,
        eer_threshold=float(shown(at_error)),
        accuracy=best,
        accuracy_threshold=float(shown(at_best)),
        tar={rate: point and point[0] for rate, point in points.items()},
        thresholds={rate: point and float(shown(point[1])) for rate, point in points.items()},
        same=counts.same_total,
        different=counts.different_total,
        unit=unit,
        exact=exact,
        thresholds_tried=len(counts.grid),
        roc=RocCurve(far, tar, shown(at)),
    )


def _listed_pairs(
    pairs: ArrayLike, same: ArrayLike | None, labels: ArrayLike | None, count: int
) -> tuple[Array, Array, Array]:
    """Both rows of each pair, and whether they match: as given, or by their labels."""
    first, second = row_numbers(pairs, "pairs", count, columns=2).T
    itself = np.flatnonzero(first == second)
    if len(itself):
        given = f"row {first[itself[0]]} with itself in pair {itself[0]}"
        raise InputError("pairs", given, "two different rows in each")
    if same is None and labels is not None:
        ids, _ = class_ids(labels, count)
        same = ids[first] == ids[second]
    return first, second, _truth_values(same, len(first))


def _truth_values(same: ArrayLike | None, count: int) -> Array:
    """`same` as booleans, one per pair, or an `InputError`."""
    array = np.asarray(same.detach().cpu() if isinstance(same, Tensor) else same)
    numeric = array.shape == (count,) and array.dtype.kind in "biuf"
    if not numeric or not np.isin(array, (0, 1)).all():
        given = "None" if same is None else f"{array.dtype} of shape {array.shape}"
        allowed = f"{count} truth values (True or 1: the same), one per pair, or labels of rows"
        raise InputError("same", given, allowed)
    return array.astype(bool)


def _fold_numbers(folds: ArrayLike | int, same: Array) -> Array:
    """The fold of each pair; a number divides the pairs, in their order, into that many runs."""
    if isinstance(folds, int | np.integer):
        if check_int("folds", folds, 2) > len(same):
            raise InputError("folds", folds, f"at most {len(same)}, the number of pairs")
        parts = np.arange(len(same)) * int(folds) // len(same)
    else:
        parts = label_array(folds, len(same), "folds")
    for fold in np.unique(parts):
        others = same[parts != fold]
        if not others.any() or others.all():
            given = f"a fold, {fold}, without which no same or no different pairs are left"
            raise InputError("folds", given, "two folds or more, with both kinds of pairs")
    return parts


@dataclass(frozen=True)
class _Counts:
    """How many pairs lie below each value of the ascending `grid`.

    `same` and `different` are `[2, grid]`: those nearer, and those at most as far.
    """

    grid: Array
    same: Array
    different: Array
    same_total: int
    different_total: int

    @classmethod
    def of_lists(cls, same: Array, different: Array) -> _Counts:
        """Counts at every distinct value of `same`, which are all corners of the curve."""
        grid = np.unique(same)
        return cls(grid, _below(same, grid), _below(different, grid), len(same), len(different))


def _below(u: Array, grid: Array) -> Array:
    ordered = np.sort(u)
    return np.stack([np.searchsorted(ordered, grid), np.searchsorted(ordered, grid, "right")])


@dataclass(frozen=True)
class _LabelledPairs:
    """All pairs of float64 rows `x`, which are in the order of their class `ids`.

    >>> pairs = _LabelledPairs(torch.tensor([[0.0], [1.0], [3.0]]).double(), np.array([0, 0, 1]))
    >>> [(c, u.tolist()) for c, u in pairs.same()]
    [(0, [1.0])]
    >>> [u.tolist() for u in pairs.different(lambda done, total: None)]
    [[3.0, 2.0]]
    """

    x: Tensor
    ids: Array

    @property
    def sizes(self) -> Array:
        """Rows of each class."""
        return np.bincount(self.ids)

    def same(self) -> Iterator[tuple[int, Array]]:
        """The distances inside each class, in parts: the class, and some of its pairs."""
        ends = np.cumsum(self.sizes)
        for c, (end, size) in enumerate(zip(ends.tolist(), self.sizes.tolist(), strict=True)):
            for a, b, block in self._blocks(end - size, end - 1, lambda row: row + 1, end):
                upper = np.arange(a + 1, end) > np.arange(a, b)[:, None]
                yield c, _settled(block[upper])

    def different(self, report: Report) -> Iterator[Array]:
        """The distances between classes, in parts: each pair once."""
        n, ends = len(self.ids), np.cumsum(self.sizes)
        last = int(ends[-2])
        for a, b, block in self._blocks(0, last, lambda row: int(ends[self.ids[row]]), n):
            later = self.ids[n - block.shape[1] :] > self.ids[a:b, None]
            yield _settled(block[later])
            report(n * n - (n - b) ** 2, n * n)  # rows b and later have the other pairs

    def drawn(self, count: int, seed: int) -> Array:
        """Distances of same-class pairs drawn uniformly at random."""
        rng = np.random.default_rng(seed)
        sizes = self.sizes
        weight = sizes * (sizes - 1.0)
        c = rng.choice(len(sizes), count, p=weight / weight.sum())
        first = rng.integers(sizes[c])
        second = (first + 1 + rng.integers(sizes[c] - 1)) % sizes[c]
        starts = np.cumsum(sizes) - sizes
        return listed_distances(self.x, starts[c] + first, starts[c] + second)

    def counts(self, grid: Array, report: Report) -> _Counts:
        """How many pairs lie below each value of the ascending grid: exact at each of them."""
        same, different = np.zeros((2, 2, len(grid)), np.int64)
        totals = [0, 0]
        kinds = (same, (u for _, u in self.same())), (different, self.different(report))
        for i, (below, tiles) in enumerate(kinds):
            for tile in _gathered(tiles):
                below += _below(tile, grid)
                totals[i] += len(tile)
        return _Counts(grid, same, different, *totals)

    def _blocks(
        self, low: int, high: int, start_of: Callable[[int], int], stop: int
    ) -> Iterator[tuple[int, int, Array]]:
        """Rows low to high in blocks [a, b), each against the columns `start_of(a)` to stop."""
        a = low
        while a < high:
            start = start_of(a)
            b = min(high, a + max(1, _TILE // (stop - start)))
            yield a, b, pairwise_distances(self.x[a:b], self.x[start:stop]).numpy()
            a = b


def _gathered(tiles: Iterator[Array]) -> Iterator[Array]:
    """Join small tiles, so that the grid is not searched once for each."""
    held: list[Array] = []
    size = 0
    for tile in tiles:
        held.append(tile)
        size += len(tile)
        if size >= _TILE // 2:
            yield np.concatenate(held)
            held, size = [], 0
    if size:
        yield np.concatenate(held)


def listed_distances(x: Tensor, first: Array, second: Array) -> Array:
    """The distance of each listed pair of rows."""
    i, j = (torch.split(torch.from_numpy(rows), _CHUNK) for rows in (first, second))
    parts = [paired_distances(x[a], x[b]).numpy() for a, b in zip(i, j, strict=True)]
    return _settled(np.concatenate(parts))


def _settled(distances: Array) -> Array:
    """Distances rounded to 33 bits: those that differ only by rounding become equal.

    >>> _settled(np.array([0.1 + 0.2, 0.3])).tolist().count(_settled(np.array([0.3]))[0])
    2
    """
    bits = np.ascontiguousarray(distances, np.float64).copy().view(np.int64)
    bits += 1 << (_BITS - 1)
    bits &= -1 << _BITS
    return bits.view(np.float64)


def _corners(counts: _Counts) -> tuple[Array, Array, Array]:
    """Corners of the curve, from accepting nothing to accepting everything.

    Different and same pairs accepted, and the threshold u. Between two thresholds of the grid only
    different pairs come in, so the curve is whole.
    """
    x = np.r_[0, counts.different.T.ravel(), counts.different_total]
    y = np.r_[0, counts.same.T.ravel(), counts.same_total]
    before = np.nextafter(counts.grid, -np.inf)
    at = np.r_[-np.inf, np.stack([before, counts.grid], axis=1).ravel(), np.inf]
    # Of points that coincide the last is kept: the loosest threshold that accepts no more.
    kept = np.r_[(np.diff(x) > 0) | (np.diff(y) > 0), True]
    kept[0] = True
    x, y, at = x[kept], y[kept], at[kept]
    dx, dy = np.diff(x).astype(float), np.diff(y).astype(float)
    bends = np.r_[True, dx[:-1] * dy[1:] != dx[1:] * dy[:-1], True]
    return x[bends], y[bends], at[bends]


def _equal_error(far: Array, tar: Array, at: Array) -> tuple[float, float]:
    """The error where false accepts and false rejects are equal, and its threshold.

    Between corners the curve is a line, as sampling between two thresholds would have it.
    """
    frr = 1 - tar
    i = int(np.argmax(far >= frr))  # not 0: there nothing is accepted
    gap_before, gap = frr[i - 1] - far[i - 1], far[i] - frr[i]
    share = gap_before / (gap_before + gap)
    error = float(far[i - 1] + share * (far[i] - far[i - 1]))
    return error, float(at[i] if math.isfinite(at[i]) else at[i - 1])


def _tar_at(counts: _Counts, rate: float) -> tuple[float, float] | None:
    """Most same pairs accepted at a false accept rate of at most `rate`, and its threshold.

    None where there are fewer than 1/rate different pairs.
    """
    allowed = math.floor(rate * counts.different_total * (1 + 1e-12))
    if allowed < 1:
        return None
    last = int(np.searchsorted(counts.different[1], allowed, "right")) - 1
    if last < 0:
        return 0.0, -math.inf
    return int(counts.same[1, last]) / counts.same_total, float(counts.grid[last])


def _best_accuracy(counts: _Counts) -> tuple[float, float]:
    """The best accuracy, and the strictest threshold that reaches it."""
    rejected = counts.different_total - counts.different[1]
    right = np.r_[counts.different_total, counts.same[1] + rejected]
    best = int(np.argmax(right))
    total = counts.same_total + counts.different_total
    return int(right[best]) / total, float(np.r_[-np.inf, counts.grid][best])


def _area_interval(counts: _Counts, area: float, level: float) -> Interval:
    """DeLong's interval of the area, on the scale of its logit so that it stays within 0 and 1."""
    m, n = counts.same_total, counts.different_total
    (same_lt, same_le), (different_lt, different_le) = counts.same, counts.different
    # Of each same pair: the share of different ones beyond it; of each different one: of same ones.
    of_same = 1 - (different_lt + different_le) / (2 * n)
    between = np.r_[different_lt, n] - np.r_[0, different_le]  # two thresholds, strictly
    of_between, of_tied = np.r_[0, same_le] / m, (same_lt + same_le) / (2 * m)
    same_squares = float((np.diff(same_le, prepend=0) * (of_same - area) ** 2).sum())
    different_squares = float((between * (of_between - area) ** 2).sum())
    different_squares += float(((different_le - different_lt) * (of_tied - area) ** 2).sum())
    error = math.sqrt(same_squares / max(m - 1, 1) / m + different_squares / max(n - 1, 1) / n)
    low = high = area
    if 0 < area < 1:
        middle = math.log(area / (1 - area))
        half = NormalDist().inv_cdf((1 + level) / 2) * error / (area * (1 - area))
        low, high = (1 / (1 + math.exp(-(middle + sign * half))) for sign in (-1, 1))
    return Interval(area, low, high, level, 0, m + n, "delong")
