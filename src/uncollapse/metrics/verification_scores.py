"""Verification: are these two the same? ROC, EER, TAR at FAR, and accuracy as LFW has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, class_ids, points
from uncollapse._base.check import InputError, check_number
from uncollapse._base.progress import ProgressOption, progress_reporter
from uncollapse.metrics._pair_tiles import Counts, LabelledPairs, listed
from uncollapse.metrics._roc import (
    area_interval,
    area_under,
    best_accuracy,
    corners,
    equal_error,
    tar_at,
)
from uncollapse.metrics._verification_input import (
    accept_rates,
    finite_scores,
    fold_numbers,
    pair_truth,
    row_pairs,
    truth_values,
)
from uncollapse.metrics.uncertainty import Interval, bootstrap, wilson_bounds
from uncollapse.metrics.verification_result import RocCurve, VerificationResult

__all__ = ["FALSE_ACCEPT_RATES", "verification"]

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
