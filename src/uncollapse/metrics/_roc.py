"""The ROC curve of counted pairs, and what is read off it; u is a distance: less is more alike."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse.metrics._pair_tiles import Counts
from uncollapse.metrics.uncertainty import Interval

__all__ = ["area_interval", "area_under", "best_accuracy", "corners", "equal_error", "tar_at"]

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
