"""How sure a score is: bootstrap intervals, spread over seeds (EPS Table 5), paired tests."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from uncollapse._base.arrays import Array, ArrayLike, class_ids, numbers64
from uncollapse._base.check import InputError, check_choice, check_int, check_number
from uncollapse._base.result import Result
from uncollapse._base.table import number, percent
from uncollapse.metrics.re_identification import ReidResult
from uncollapse.metrics.retrieval_scores import RetrievalResult

_HINT = " (embeddings? uc.confidence(uc.retrieval(x, labels), 'recall@1'))"
_EXACT_SEEDS = 16  # up to here all 2^n sign patterns are tried


@dataclass(frozen=True)
class Interval(Result):
    """A mean with its interval; `resamples` is 0 where it comes from a formula, not a bootstrap."""

    value: float
    low: float
    high: float
    level: float
    resamples: int
    units: int
    method: str

    @property
    def text(self) -> str:
        """In per cent: 49.6 % (48.2 to 51)."""
        low, high = (number(100 * bound, 3) for bound in (self.low, self.high))
        return f"{percent(self.value)} ({low} to {high})"

    def __str__(self) -> str:
        bounds = f"[{self.low:.4f}, {self.high:.4f}]"
        return f"{self.value:.4f} {bounds} ({percent(self.level)} {self.method})"


@dataclass(frozen=True)
class SeedSummary(Result):
    """Mean and sample standard deviation (n - 1) of a score over seeds."""

    mean: float
    std: float
    seeds: int

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.std:.4f} ({self.seeds} seeds)"


@dataclass(frozen=True)
class SeedComparison(Result):
    """Two methods over the same seeds; `p_value` is two-sided, `test` says which."""

    first: SeedSummary
    second: SeedSummary
    difference: float
    p_value: float
    test: str

    def to_dict(self) -> dict[str, Any]:
        """Numbers by name: mean and std of each, the difference, the test and the seeds."""
        numbers: dict[str, Any] = {}
        for name, side in (("first", self.first), ("second", self.second)):
            numbers |= {f"{name}_mean": side.mean, f"{name}_std": side.std}
        numbers |= {"difference": self.difference, "p_value": self.p_value, "test": self.test}
        return numbers | {"seeds": self.first.seeds}


def confidence(
    values: ArrayLike | RetrievalResult | ReidResult,
    metric: str | None = None,
    *,
    groups: ArrayLike | None = None,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """Bootstrap interval of a mean over queries, or over whole classes.

    `values` is a result with the name of its `metric` ("recall@1", "map@r", "mAP", ...; queries
    without a match are left out), or one number per query. Queries of a class are not independent:
    `groups` (their labels) draws whole classes instead. The interval holds the middle `level` of
    the means of `resamples` draws.

    >>> interval = confidence([0.0, 1.0] * 50)
    >>> interval.value, 0.38 < interval.low < 0.45, 0.55 < interval.high < 0.62
    (0.5, True, True)
    """
    check_number("level", level, 0.0, 1.0)
    check_int("resamples", resamples, 100)
    numbers = _values(values, metric)
    ids = np.arange(len(numbers))
    if groups is not None:
        ids, _ = class_ids(groups, len(numbers), "groups")
    kept = ~np.isnan(numbers)
    if not kept.any():
        raise InputError("values", "no number", "at least one query with a match")
    _, unit = np.unique(ids[kept], return_inverse=True)
    sums = np.bincount(unit, numbers[kept])
    sizes = np.bincount(unit).astype(float)
    return bootstrap(sums, sizes, level=level, resamples=resamples, seed=seed)


def bootstrap(
    sums: Array, sizes: Array, *, level: float = 0.95, resamples: int = 1000, seed: int = 0
) -> Interval:
    """Bootstrap interval of Σ sums / Σ sizes, resampling whole units, one per entry.

    >>> bootstrap(np.array([0.0, 1.0] * 50), np.ones(100)).value
    0.5
    """
    value = float(sums.sum() / sizes.sum())
    generator = np.random.default_rng(check_int("seed", seed, 0))
    drawn = np.empty(resamples)
    for i in range(resamples):
        times = np.bincount(generator.integers(len(sums), size=len(sums)), minlength=len(sums))
        drawn[i] = (times @ sums) / (times @ sizes)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2]).tolist()
    return Interval(value, low, high, level, resamples, len(sums), "percentile")


def wilson_interval(share: float, trials: float, level: float = 0.95) -> Interval:
    """Wilson's score interval of a share of `trials`: sensible for few, and for 0 or all.

    >>> print(wilson_interval(1.0, 3))
    1.0000 [0.4385, 1.0000] (95\N{NO-BREAK SPACE}% wilson)
    """
    z = NormalDist().inv_cdf((1 + level) / 2)
    square = z * z / trials
    middle = (share + square / 2) / (1 + square)
    half = z * math.sqrt(share * (1 - share) / trials + square / (4 * trials)) / (1 + square)
    # At the ends the interval touches 0 or 1 exactly, which rounding would miss.
    low = 0.0 if share == 0.0 else max(0.0, middle - half)
    high = 1.0 if share == 1.0 else min(1.0, middle + half)
    return Interval(share, low, high, level, 0, int(trials), "wilson")


def over_seeds(values: ArrayLike) -> SeedSummary:
    """Mean and sample standard deviation of one score per seed.

    >>> print(over_seeds([0.70, 0.72, 0.74]))
    0.7200 ± 0.0200 (3 seeds)
    """
    numbers = finite_numbers(values, "values", least=2)
    return SeedSummary(float(numbers.mean()), float(numbers.std(ddof=1)), len(numbers))


def compare_seeds(first: ArrayLike, second: ArrayLike) -> SeedComparison:
    """Compare two methods run with the same seeds, in the same order.

    Up to 16 seeds: the exact sign-flip test. If the methods were equal, each seed's difference
    could as well have had the other sign; the p-value is the share of all 2^n sign patterns whose
    mean is at least as far from 0 (n seeds cannot give less than 2^(1-n)). More seeds: the paired
    t-test.

    >>> result = compare_seeds([0.80, 0.81, 0.79, 0.82, 0.80], [0.75, 0.74, 0.76, 0.75, 0.77])
    >>> round(result.difference, 3), result.p_value, result.test
    (0.05, 0.0625, 'exact sign-flip')
    """
    from scipy import stats

    a = finite_numbers(first, "first", least=2)
    b = finite_numbers(second, "second", least=2)
    if len(a) != len(b):
        raise InputError("second", f"{len(b)} seeds", f"{len(a)}, the same seeds as first")
    difference = a - b
    n = len(difference)
    if n <= _EXACT_SEEDS:
        signs = 1 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)
        means = np.abs(signs @ difference)
        least = abs(difference.sum()) - 1e-12 * np.abs(difference).sum()
        p_value, test = float((means >= least).mean()), "exact sign-flip"
    elif np.ptp(difference) == 0.0:  # the t statistic is 0/0 or infinite
        p_value, test = float(difference[0] == 0.0), "paired t"
    else:
        p_value, test = float(stats.ttest_rel(a, b).pvalue), "paired t"
    return SeedComparison(over_seeds(a), over_seeds(b), float(difference.mean()), p_value, test)


def _values(values: ArrayLike | RetrievalResult | ReidResult, metric: str | None) -> Array:
    if isinstance(values, RetrievalResult | ReidResult):
        check_choice("metric", metric, values.per_query)
        return values.per_query[str(metric)]
    if getattr(values, "ndim", 1) == 2:  # embeddings
        given = f"an array of shape {tuple(values.shape)}{_HINT}"  # type: ignore[union-attr]
        raise InputError("values", given, "one number per query, or a result and its metric")
    if metric is not None:
        given = f"{type(metric).__name__} beside plain numbers (labels? groups=labels)"
        raise InputError("metric", given, "None, or a result of uc.retrieval or uc.reid as values")
    return numbers64(values, "values")


def finite_numbers(values: ArrayLike, name: str, *, least: int) -> Array:
    """Return a list of at least `least` finite numbers as a float64 array."""
    numbers = numbers64(values, name, least=least)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise InputError(name, f"{numbers[bad[0]]} in row {bad[0]}", "finite numbers")
    return numbers
