"""Verification: are these two the same? ROC, EER, TAR at FAR, and accuracy as LFW has it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, class_ids, label_array, numbers64, points
from uncollapse._base.check import InputError, check_int, check_number
from uncollapse._base.progress import ProgressOption, progress_reporter
from uncollapse.distances import paired_distances, pairwise_distances
from uncollapse.metrics.intervals import Interval, bootstrap, wilson_bounds
from uncollapse.metrics.result_table import Result

__all__ = [
    "FALSE_ACCEPT_RATES",
    "Counts",
    "LabelledPairs",
    "RocCurve",
    "VerificationResult",
    "accept_rates",
    "area_interval",
    "area_under",
    "best_accuracy",
    "corners",
    "equal_error",
    "finite_scores",
    "fold_numbers",
    "listed",
    "pair_truth",
    "row_pairs",
    "settled",
    "tar_at",
    "truth_values",
    "verification",
]


# What a verification is worth: the ROC curve of pairs, and the figures read off it.


@dataclass(frozen=True)
class RocCurve:
    """Corners of the curve, from the strictest threshold: false and true accept rates.

    `thresholds` are in the result's `unit`; the first, which accepts nothing, is infinite.
    """

    far: Array
    tar: Array
    thresholds: Array

    def __len__(self) -> int:
        return len(self.far)


@dataclass(frozen=True)
class VerificationResult(Result):
    """How well a threshold tells pairs of one class from pairs of two.

    `tar[f]` is the largest true accept rate at a false accept rate of at most f, and
    `thresholds[f]` the threshold; both None where there are fewer than 1/f different pairs, too few
    to say. `eer` is where the two errors are equal. `accuracy` is the best there is, at
    `accuracy_threshold`, chosen on the pairs themselves; `fold_accuracy` that of each fold at the
    best threshold of the others. `unit` is what thresholds are of: a `"score"` or `"cosine"`
    (accepted from there up) or a `"distance"` (accepted up to there). `exact` is False where
    thresholds were `thresholds_tried` of those there are; the counts at each are exact. `intervals`
    holds those there are, by the names of `to_dict`.
    """

    auc: float
    eer: float
    eer_threshold: float
    accuracy: float
    accuracy_threshold: float
    tar: Mapping[float, float | None]
    thresholds: Mapping[float, float | None]
    same: int
    different: int
    unit: str
    exact: bool
    thresholds_tried: int
    fold_accuracy: tuple[float, ...] = ()
    intervals: Mapping[str, Interval] = field(default_factory=dict, repr=False, compare=False)
    roc: RocCurve | None = field(default=None, repr=False, compare=False)

    @property
    def mean_fold_accuracy(self) -> float:
        """Mean over the folds; NaN without folds."""
        return float(np.mean(self.fold_accuracy)) if self.fold_accuracy else math.nan

    @property
    def fold_standard_error(self) -> float:
        """Standard error of that mean, as LFW's protocol reports it; NaN below two folds."""
        many = len(self.fold_accuracy)
        return float(np.std(self.fold_accuracy, ddof=1) / math.sqrt(many)) if many > 1 else math.nan

    def to_dict(self) -> dict[str, Any]:
        """Numbers by name: auc, eer, accuracy, tar@f, their thresholds, and the counts."""
        numbers: dict[str, Any] = {"auc": self.auc, "eer": self.eer, "accuracy": self.accuracy}
        if self.fold_accuracy:
            numbers["fold_accuracy"] = self.mean_fold_accuracy
            numbers["fold_standard_error"] = self.fold_standard_error
        numbers |= {f"tar@{rate:g}": value for rate, value in self.tar.items()}
        numbers |= {
            "eer_threshold": self.eer_threshold,
            "accuracy_threshold": self.accuracy_threshold,
        }
        numbers |= {f"threshold@{rate:g}": value for rate, value in self.thresholds.items()}
        return numbers | {
            "unit": self.unit,
            "same": self.same,
            "different": self.different,
            "exact": self.exact,
            "thresholds_tried": self.thresholds_tried,
        }


# What users hand to `verification`: checked, and as arrays.


def finite_scores(scores: ArrayLike) -> Array:
    """Scores as finite float64 numbers, or an `InputError`."""
    values = numbers64(scores, "scores", least=2)
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise InputError("scores", f"{values[row]} in row {row}", "finite numbers")
    return values


def truth_values(same: ArrayLike | None, count: int) -> Array:
    """`same` as booleans, one a pair, or an `InputError`."""
    allowed = f"{count} truth values (True or 1: the same), one a pair"
    if same is None:
        raise InputError("same", "None", allowed)
    array = np.asarray(same.detach().cpu() if isinstance(same, Tensor) else same)
    if (
        array.shape != (count,)
        or array.dtype.kind not in "biuf"
        or not np.isin(array, (0, 1)).all()
    ):
        raise InputError("same", f"{array.dtype} of shape {array.shape}", allowed)
    return array.astype(bool)


def row_pairs(pairs: ArrayLike, rows: int) -> Array:
    """Pairs of row numbers `[P, 2]`, or an `InputError`."""
    array = np.asarray(pairs.detach().cpu() if isinstance(pairs, Tensor) else pairs)
    if array.ndim != 2 or array.shape[1] != 2 or not len(array) or array.dtype.kind not in "iu":
        given = f"{array.dtype} of shape {array.shape}"
        raise InputError("pairs", given, "row numbers of shape [P, 2]")
    if array.min() < 0 or array.max() >= rows:
        given = f"{array.min()} to {array.max()}"
        raise InputError("pairs", given, f"row numbers from 0 to {rows - 1}")
    itself = np.flatnonzero(array[:, 0] == array[:, 1])
    if len(itself):
        given = f"row {array[itself[0], 0]} with itself in pair {itself[0]}"
        raise InputError("pairs", given, "two different rows in each")
    return array.astype(np.int64)


def pair_truth(rows: Array, same: ArrayLike | None, labels: ArrayLike | None, count: int) -> Array:
    """Which pairs are the same: as said, or by the labels of their rows."""
    if same is not None:
        return truth_values(same, len(rows))
    if labels is None:
        raise InputError("same", "None", "one truth value a pair, or labels, which say it")
    ids, _ = class_ids(labels, count)
    found: Array = ids[rows[:, 0]] == ids[rows[:, 1]]
    return found


def fold_numbers(folds: ArrayLike | int, same: Array) -> Array:
    """The fold of each pair; a number makes so many runs of the pairs as they stand."""
    if isinstance(folds, int | np.integer):
        if not 2 <= check_int("folds", folds, 2) <= len(same):
            raise InputError("folds", folds, f"at most {len(same)}, the number of pairs")
        parts = np.arange(len(same)) * int(folds) // len(same)
    else:
        parts = label_array(folds, len(same), "folds")
    for fold in np.unique(parts):
        rest = same[parts != fold]
        if not rest.any() or rest.all():
            given = f"a fold, {fold}, without which no same or no different pairs are left"
            raise InputError("folds", given, "two folds or more, with both kinds of pairs")
    return parts


def accept_rates(far: Sequence[float]) -> Array:
    """False accept rates as an array, or an `InputError`."""
    try:
        values = np.atleast_1d(np.asarray(far, dtype=float))
    except (TypeError, ValueError):
        values = np.zeros(1)
    if not len(values) or not ((values > 0) & (values < 1)).all():
        raise InputError("far", repr(far), "numbers between 0 and 1")
    return values


# Distances of all pairs of labelled rows, a tile at a time, and how many lie below thresholds.

_TILE = 1 << 22  # distances at a time: 32 MB
_CHUNK = 1 << 14  # pairs measured at a time where they are listed
_BITS = 52 - 33  # of a float64's fraction that are rounding: products are right to about 1e-10
_SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")  # below, and at or below


@dataclass(frozen=True)
class Counts:
    """Pairs nearer than (`_lt`), or at most as far as (`_le`) each of the ascending `grid`."""

    grid: Array
    same: int
    different: int
    same_lt: Array
    same_le: Array
    different_lt: Array
    different_le: Array

    @classmethod
    def of_lists(cls, same: Array, different: Array) -> Counts:
        """Counts at every distinct value of `same`: all that a curve can be asked."""
        grid = np.unique(same)
        parts: list[Array] = []
        for u in (same, different):
            ordered = np.sort(u)
            parts += [np.searchsorted(ordered, grid, side) for side in _SIDES]
        return cls(grid, len(same), len(different), *parts)


@dataclass(frozen=True)
class LabelledPairs:
    """All pairs of float64 rows `x`, which are in the order of their class `ids`.

    >>> pairs = LabelledPairs(torch.tensor([[0.0], [1.0], [3.0]]).double(), np.array([0, 0, 1]))
    >>> [(c, u.tolist()) for c, u in pairs.same()], [u.tolist() for u in pairs.different()]
    ([(0, [1.0])], [[3.0, 2.0]])
    """

    x: Tensor
    ids: Array

    @property
    def sizes(self) -> Array:
        """Rows of each class."""
        return np.bincount(self.ids)

    @property
    def same_count(self) -> int:
        """Pairs of one class."""
        return int((self.sizes * (self.sizes - 1) // 2).sum())

    @property
    def different_count(self) -> int:
        """Pairs of two classes."""
        n = len(self.ids)
        return n * (n - 1) // 2 - self.same_count

    def same(self) -> Iterator[tuple[int, Array]]:
        """The distances inside each class, in parts: the class, and some of its pairs."""
        starts = np.r_[0, np.cumsum(self.sizes)]
        for c, (low, high) in enumerate(pairwise(starts.tolist())):
            for a, b, block in self._blocks(low, high, partial(_rest_of, high)):
                upper = np.arange(a + 1, high) > np.arange(a, b)[:, None]
                yield c, settled(block[upper])

    def different(self, report: Callable[[int, int], None] | None = None) -> Iterator[Array]:
        """The distances between classes, in parts: each pair once."""
        n, ends = len(self.ids), np.cumsum(self.sizes)
        for a, b, block in self._blocks(0, n, lambda row: (int(ends[self.ids[row]]), n)):
            later = self.ids[n - block.shape[1] :] > self.ids[a:b, None]
            yield settled(block[later])
            if report is not None:  # rows a and later have the rest of the pairs
                report(n * n - (n - b) ** 2, n * n)

    def drawn(self, count: int, rng: np.random.Generator) -> Array:
        """Distances of same-class pairs drawn at random, every pair alike."""
        sizes = self.sizes
        weight = sizes * (sizes - 1.0)
        c = rng.choice(len(sizes), count, p=weight / weight.sum())
        first = rng.integers(sizes[c])
        second = (first + 1 + rng.integers(sizes[c] - 1)) % sizes[c]
        starts = np.r_[0, np.cumsum(sizes)[:-1]]
        return listed(self.x, starts[c] + first, starts[c] + second)

    def counts(self, grid: Array, report: Callable[[int, int], None]) -> Counts:
        """How many pairs lie below each value of the ascending grid: exact at each of them."""
        parts: list[Array] = [np.zeros(len(grid), np.int64) for _ in range(4)]
        for place, tiles in ((0, (u for _, u in self.same())), (2, self.different(report))):
            for tile in _gathered(tiles):
                tile.sort()
                for i, side in enumerate(_SIDES):
                    parts[place + i] += np.searchsorted(tile, grid, side)
        return Counts(grid, self.same_count, self.different_count, *parts)

    def _blocks(
        self, low: int, high: int, columns: Callable[[int], tuple[int, int]]
    ) -> Iterator[tuple[int, int, Array]]:
        """Rows low to high in blocks [a, b), each against the columns that row a needs."""
        a = low
        while a < high:
            start, end = columns(a)
            if start >= end:
                return
            b = min(high, a + max(1, _TILE // (end - start)))
            yield a, b, pairwise_distances(self.x[a:b], self.x[start:end]).numpy()
            a = b


def _rest_of(end: int, row: int) -> tuple[int, int]:
    """The rows after this one, up to the end."""
    return row + 1, end


def listed(x: Tensor, first: Array, second: Array) -> Array:
    """The distance of each listed pair of rows."""
    i, j = torch.from_numpy(first.astype(np.int64)), torch.from_numpy(second.astype(np.int64))
    parts = [
        paired_distances(x[i[at : at + _CHUNK]], x[j[at : at + _CHUNK]]).numpy()
        for at in range(0, len(i), _CHUNK)
    ]
    return settled(np.concatenate(parts))


def settled(distances: Array) -> Array:
    """Distances to 33 bits: those that differ by their rounding alone become equal.

    >>> settled(np.array([0.1 + 0.2, 0.3])).tolist().count(settled(np.array([0.3]))[0])
    2
    """
    bits = np.ascontiguousarray(distances, np.float64).copy().view(np.int64)
    bits += 1 << (_BITS - 1)
    bits &= -1 << _BITS
    return bits.view(np.float64)


def _gathered(tiles: Iterator[Array]) -> Iterator[Array]:
    """Small tiles together, so that the whole grid is not looked up for each."""
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


# The ROC curve of counted pairs, and what is read off it; u is a distance: less is more alike.

Corners = tuple[Array, Array, Array]  # different and same pairs accepted, and the threshold u


def corners(counts: Counts) -> Corners:
    """Where the curve may bend, from nothing accepted to everything; those on a line are left out.

    Between two thresholds of the grid only different pairs come in, so the curve is whole.
    """
    before = np.nextafter(counts.grid, -np.inf)
    x, y, at = (
        np.stack(pair, axis=1).ravel()
        for pair in (
            (counts.different_lt, counts.different_le),
            (counts.same_lt, counts.same_le),
            (before, counts.grid),
        )
    )
    x, y = np.r_[0, x, counts.different], np.r_[0, y, counts.same]
    at = np.r_[-np.inf, at, np.inf]
    moved = np.r_[True, (np.diff(x) > 0) | (np.diff(y) > 0)]
    # Of places that coincide the last is kept: the loosest threshold that accepts no more.
    kept = np.r_[moved[1:], True]
    kept[0] = True
    x, y, at = x[kept], y[kept], at[kept]
    dx, dy = np.diff(x).astype(float), np.diff(y).astype(float)
    bends = np.r_[True, dx[:-1] * dy[1:] != dx[1:] * dy[:-1], True]
    return x[bends], y[bends], at[bends]


def area_under(curve: Corners) -> float:
    """Trapezoids: the share of (same, different) in which the same pair is nearer, ties by half."""
    x, y, _ = curve
    whole = float((np.diff(x).astype(float) * (y[1:] + y[:-1])).sum()) / 2
    return whole / (float(x[-1]) * float(y[-1]))


def equal_error(curve: Corners, counts: Counts) -> tuple[float, float]:
    """The error where false accepts and false rejects are equal, and its threshold.

    Between corners the curve is a line, as sampling between two thresholds would have it.
    """
    x, y, at = curve
    far, frr = x / counts.different, 1 - y / counts.same
    i = int(np.argmax(far >= frr))  # not 0: there nothing is accepted
    gap_before, gap = frr[i - 1] - far[i - 1], far[i] - frr[i]
    share = gap_before / (gap_before + gap)
    error = float(far[i - 1] + share * (far[i] - far[i - 1]))
    return error, float(at[i] if math.isfinite(at[i]) else at[i - 1])


def tar_at(counts: Counts, rate: float) -> tuple[float, float] | None:
    """The most same pairs accepted at a false accept rate of at most `rate`, and the threshold.

    None where there are fewer than 1/rate different pairs.
    """
    allowed = math.floor(rate * counts.different * (1 + 1e-12))
    if allowed < 1:
        return None
    last = int(np.searchsorted(counts.different_le, allowed, "right")) - 1
    if last < 0:
        return 0.0, -math.inf
    return int(counts.same_le[last]) / counts.same, float(counts.grid[last])


def best_accuracy(counts: Counts) -> tuple[float, float]:
    """The best share of right decisions, and the strictest threshold that has it."""
    right = np.r_[counts.different, counts.same_le + counts.different - counts.different_le]
    best = int(np.argmax(right))
    total = counts.same + counts.different
    return int(right[best]) / total, float(np.r_[-np.inf, counts.grid][best])


def area_interval(counts: Counts, area: float, level: float) -> Interval:
    """DeLong's interval of the area, on the scale of its logit so that it stays within 0 and 1."""
    m, n = counts.same, counts.different
    # Of each same pair: the share of different ones beyond it; of each different one: of same ones.
    mine = 1 - (counts.different_lt + counts.different_le) / (2 * n)
    many = np.diff(counts.same_le, prepend=0)
    at = counts.different_le - counts.different_lt
    edges = np.r_[counts.different_lt, n] - np.r_[0, counts.different_le]  # strictly between
    theirs = np.r_[0, counts.same_le] / m
    tied = (counts.same_lt + counts.same_le) / (2 * m)
    between = float((edges * (theirs - area) ** 2).sum() + (at * (tied - area) ** 2).sum())
    spread = float((many * (mine - area) ** 2).sum()) / max(m - 1, 1) / m
    error = math.sqrt(spread + between / max(n - 1, 1) / n)
    z = NormalDist().inv_cdf((1 + level) / 2)
    low = high = area
    if 0 < area < 1:
        middle, half = math.log(area / (1 - area)), z * error / (area * (1 - area))
        low, high = (1 / (1 + math.exp(-(middle + s * half))) for s in (-1, 1))
    return Interval(area, low, high, level, 0, m + n, "delong")


FALSE_ACCEPT_RATES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
_ALL_BELOW = 1 << 22  # same pairs up to which each has its own threshold: 130 MB
_GRID = 1 << 20  # thresholds beyond that, at quantiles of the same pairs
_WAYS = "embeddings and labels, embeddings and pairs, or scores and same"


def verification(
    embeddings: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    pairs: ArrayLike | None = None,
    same: ArrayLike | None = None,
    scores: ArrayLike | None = None,
    folds: ArrayLike | int | None = None,
    far: Sequence[float] = FALSE_ACCEPT_RATES,
    normalize: bool = False,
    level: float = 0.95,
    progress: ProgressOption = None,
    seed: int = 0,
) -> VerificationResult:
    """Accept pairs up to a distance (from a score up), for every threshold, and score that.

    Three ways in: `embeddings` and `labels`, for all pairs of rows; `embeddings` and `pairs`,
    `[P, 2]` row numbers, with `same`, one truth value a pair (or `labels`, which say it); `scores`,
    larger for more alike, and `same`. `normalize` scales rows to norm 1: thresholds are cosines.

    A false accept rate (FAR) is the share of different pairs accepted, a true one (TAR) that of
    same pairs. `folds` of listed pairs (a number per pair, or how many equal runs of them to make)
    gives LFW's accuracy: of each fold at the threshold that is best on the others.

    **Exact.** All pairs are measured in tiles, in float64; up to 4 million same pairs every one is
    a threshold, and area, EER, TAR and accuracy are those of all pairs. Beyond, a million
    thresholds are taken at quantiles of the same pairs, `exact` is False, and the counts at each
    are exact. Distances equal to 33 bits are tied; of tied pairs all are accepted or none.

    **Intervals.** Of listed pairs: Wilson's, and DeLong's for the area, which take pairs as
    independent. Of all pairs: whole classes are drawn again for area and TAR, at the threshold
    found; EER and accuracy have none. Raises `InputError`.

    >>> result = verification(scores=[0.9, 0.8, 0.4, 0.6, 0.1, 0.2], same=[1, 1, 1, 0, 0, 0])
    >>> round(result.auc, 4), round(result.eer, 4), result.accuracy, result.accuracy_threshold
    (0.8889, 0.3333, 0.8333333333333334, 0.8)
    >>> result.tar[0.1] is None  # three different pairs do not show one in ten
    True
    """
    rates = accept_rates(far)
    check_number("level", level, 0.0, 1.0)
    if scores is not None:
        for name, given in (("embeddings", embeddings), ("labels", labels), ("pairs", pairs)):
            if given is not None:
                raise InputError(name, "given with scores", "scores and same alone")
        u = -finite_scores(scores)
        return _of_list(u, truth_values(same, len(u)), folds, rates, level, "score")
    if embeddings is None:
        raise InputError("embeddings", "None", _WAYS)
    x = points(embeddings, "embeddings", min_rows=2).detach().cpu().double()
    x, unit = (_unit_rows(x), "cosine") if normalize else (x, "distance")
    if pairs is not None:
        rows = row_pairs(pairs, len(x))
        truth = pair_truth(rows, same, labels, len(x))
        return _of_list(listed(x, rows[:, 0], rows[:, 1]), truth, folds, rates, level, unit)
    if labels is None:
        raise InputError("labels", "None", _WAYS)
    for name, without in (("same", same), ("folds", folds)):
        if without is not None:
            raise InputError(name, "given without pairs", "pairs beside it, or neither")
    ids, _ = class_ids(labels, len(x), min_classes=2)
    order = np.argsort(ids, kind="stable")
    tiles = LabelledPairs(x[torch.from_numpy(order)], ids[order])
    with progress_reporter(progress, "verification") as report:
        return _of_all(tiles, rates, level, unit, report, np.random.default_rng(seed))


def _of_list(
    u: Array, same: Array, folds: ArrayLike | int | None, rates: Array, level: float, unit: str
) -> VerificationResult:
    if same.all() or not same.any():
        given = f"{int(same.sum())} same and {int((~same).sum())} different pairs"
        raise InputError("same", given, "at least one of each")
    parts = None if folds is None else fold_numbers(folds, same)
    counts = Counts.of_lists(u[same], u[~same])

    def shares(found: VerificationResult) -> dict[str, Interval]:
        both = 4 / (1 / found.same + 1 / found.different)  # the mean of two independent rates
        trials = {"eer": both, "accuracy": found.same + found.different}
        trials |= {f"tar@{rate:g}": found.same for rate in rates}
        known = {k: v for k, v in found.to_dict().items() if k in trials and v is not None}
        wilson = {
            name: Interval(
                value, *wilson_bounds(value, trials[name], level), level, 0, int(trials[name]),
                "wilson",
            )
            for name, value in known.items()
        }  # fmt: skip
        return {"auc": area_interval(counts, found.auc, level)} | wilson

    accuracy = () if parts is None else tuple(_fold_accuracy(u, same, parts))
    return _result(counts, rates, unit, True, accuracy, shares)


def _of_all(
    tiles: LabelledPairs,
    rates: Array,
    level: float,
    unit: str,
    report: Callable[[int, int], None],
    rng: np.random.Generator,
) -> VerificationResult:
    if not tiles.same_count:
        given = f"{len(tiles.sizes)} classes of one row"
        raise InputError("labels", given, "a class of two rows at least")
    exact = tiles.same_count <= _ALL_BELOW
    grid = np.concatenate([u for _, u in tiles.same()]) if exact else tiles.drawn(_GRID, rng)
    counts = tiles.counts(np.unique(grid), report)

    def by_class(found: VerificationResult) -> dict[str, Interval]:
        limits = {rate: t for rate in rates if (t := tar_at(counts, rate)) is not None}
        beyond = 1 - np.r_[0, counts.different_lt + counts.different_le] / (2 * counts.different)
        sums = {"auc": np.zeros(len(tiles.sizes))}
        sums |= {f"tar@{rate:g}": np.zeros(len(tiles.sizes)) for rate in limits}
        for c, u in tiles.same():
            sums["auc"][c] += beyond[np.searchsorted(counts.grid, u, "right")].sum()
            for rate, (_, limit) in limits.items():
                sums[f"tar@{rate:g}"][c] += np.count_nonzero(u <= limit)
        many = tiles.sizes * (tiles.sizes - 1) / 2
        kept = many > 0
        draw = partial(bootstrap, level=level)
        return {name: draw(one[kept], many[kept]) for name, one in sums.items()}

    return _result(counts, rates, unit, exact, (), by_class)


def _result(
    counts: Counts,
    rates: Array,
    unit: str,
    exact: bool,
    accuracy: tuple[float, ...],
    intervals: Callable[[VerificationResult], dict[str, Interval]],
) -> VerificationResult:
    def seen(threshold: float) -> float:
        return float(_seen(np.array(threshold), unit))

    curve = corners(counts)
    error, at_error = equal_error(curve, counts)
    best, at_best = best_accuracy(counts)
    found = {float(rate): tar_at(counts, rate) for rate in rates}
    x, y, at = curve
    result = VerificationResult(
        auc=area_under(curve),
        eer=error,
        eer_threshold=seen(at_error),
        accuracy=best,
        accuracy_threshold=seen(at_best),
        tar={rate: None if one is None else one[0] for rate, one in found.items()},
        thresholds={rate: None if one is None else seen(one[1]) for rate, one in found.items()},
        same=counts.same,
        different=counts.different,
        unit=unit,
        exact=exact,
        thresholds_tried=len(counts.grid),
        fold_accuracy=accuracy,
        roc=RocCurve(x / counts.different, y / counts.same, _seen(at, unit)),
    )
    return replace(result, intervals=intervals(result))


def _seen(u: Array, unit: str) -> Array:
    """Thresholds as the caller knows them."""
    if unit == "distance":
        return u
    return np.where(np.isfinite(u), 1 - u * u / 2, -u) if unit == "cosine" else -u


def _fold_accuracy(u: Array, same: Array, folds: Array) -> list[float]:
    found = []
    for fold in np.unique(folds):
        out = folds == fold
        chosen = Counts.of_lists(u[~out & same], u[~out & ~same])
        accepted = u[out] <= best_accuracy(chosen)[1]
        found.append(float((accepted == same[out]).mean()))
    return found


def _unit_rows(x: Tensor) -> Tensor:
    largest = x.abs().amax(dim=1, keepdim=True)
    x = x / torch.where(largest > 0, largest, 1.0)  # or tiny rows would vanish when squared
    norm = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return x / torch.where(norm > 0, norm, 1.0)
