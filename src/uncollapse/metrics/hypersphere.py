"""Directions: alignment and uniformity (Wang & Isola 2020), anisotropy (Ethayarajh 2019)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from uncollapse._base.arrays import Array, ArrayLike, numbers64
from uncollapse._base.check import check_number
from uncollapse._base.classes import ClassLayout
from uncollapse.metrics._directions import (
    block_squares,
    chosen_rows,
    mean_gap,
    pair_blocks,
    unit_rows,
)

__all__ = ["Anisotropy", "alignment", "anisotropy", "uniformity"]


@dataclass(frozen=True)
class Anisotropy:
    """Mean cosine of all pairs, and quantiles of it by their level."""

    mean: float
    quantiles: dict[float, float]


def alignment(x: ArrayLike, labels: ArrayLike, *, alpha: float = 2.0) -> float:
    """Alignment of Wang & Isola 2020: mean |u - v|^alpha over positive pairs on the sphere.

    Positive pairs are all pairs of different rows with one label, each alike; two views of a sample
    are two rows with its number as label. Rows are divided by their norms. 0 where each class is
    one direction; 2 (for alpha 2) where directions are independent of the class. NaN where no class
    has two rows.

    >>> alignment([[1.0, 0.0], [0.0, 3.0], [2.0, 0.0]], [0, 0, 1])
    2.0
    """
    check_number("alpha", alpha, 1e-6)
    unit = unit_rows(x)
    layout = ClassLayout.of(labels, len(unit))
    total, pairs = 0.0, 0
    for members in np.split(unit[layout.order], layout.starts[1:]):
        total += _power_sum(members, alpha)
        pairs += len(members) * (len(members) - 1) // 2
    return total / pairs if pairs else math.nan


def uniformity(x: ArrayLike, *, t: float = 2.0, sample: int | None = None, seed: int = 0) -> float:
    """Uniformity of Wang & Isola 2020: log of the mean of exp(-t |u - v|²) over all pairs.

    Rows are divided by their norms. 0 where all are one direction; uniform on a sphere of many
    dimensions about -2t. `sample` takes so many rows, chosen by `seed`, in place of all: the time
    goes with the square of their number.

    >>> uniformity([[1.0, 0.0], [3.0, 0.0]]), uniformity([[1.0, 0.0], [-1.0, 0.0]])
    (0.0, -8.0)
    """
    check_number("t", t, 0.0)
    unit = unit_rows(x, min_rows=2)
    unit = unit[chosen_rows(len(unit), sample, seed)]
    parts = [_log_sum_exp(-t * block_squares(unit, *ends)) for ends in pair_blocks(unit)]
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
    direction: a cone. Blind to scale, not to place. A row of zeros has cosine 0 with all others.

    >>> found = anisotropy([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]], quantiles=(0.5, 1.0))
    >>> round(found.mean, 6), found.quantiles
    (0.333333, {0.5: 0.0, 1.0: 1.0})
    """
    levels = [
        check_number("quantiles", level, 0.0, 1.0) for level in numbers64(quantiles, "quantiles")
    ]
    unit = unit_rows(x, min_rows=2)
    some = unit[chosen_rows(len(unit), sample, seed)]
    values = np.concatenate([_cosines(some, low, high) for low, high in pair_blocks(some)])
    found = np.quantile(values, levels)
    return Anisotropy(1 - mean_gap(unit), dict(zip(levels, found.tolist(), strict=True)))


def _power_sum(unit: Array, alpha: float) -> float:
    """Sum of |u - v|^alpha over the pairs."""
    n = len(unit)
    if n < 2:
        return 0.0
    if alpha == 2.0:  # n times the sum of squares about the mean
        about = unit - unit[0]
        return float(((about - about.mean(axis=0)) ** 2).sum() * n)
    blocks = pair_blocks(unit)
    return float(sum((block_squares(unit, *ends) ** (alpha / 2)).sum() for ends in blocks))


def _cosines(unit: Array, low: int, high: int) -> Array:
    """Cosines of the pairs i < j with i in the block."""
    zero = (unit == 0).all(axis=1)
    lacking = (zero[low:high, None].astype(np.float64) + zero[low:]) / 2
    kept = np.arange(high - low)[:, None] < np.arange(len(unit) - low)
    cosines: Array = 1 - (block_squares(unit, low, high) / 2 + lacking[kept])
    return cosines


def _log_sum_exp(values: Array) -> float:
    if not len(values):  # a last block of one row has no pair
        return -math.inf
    largest = float(values.max())
    return largest + math.log(float(np.exp(values - largest).sum()))
