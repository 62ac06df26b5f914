"""Density of classes, π_intra and π_inter: Roth et al. 2020."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from uncollapse._base.arrays import ArrayLike
from uncollapse._base.classes import ClassLayout
from uncollapse.metrics._directions import mean_gap, unit_rows

__all__ = ["PiRatio", "pi_ratio"]


@dataclass(frozen=True)
class PiRatio:
    """Mean cosine distance inside classes, that between class means, the first over the second."""

    intra: float
    inter: float
    ratio: float


def pi_ratio(x: ArrayLike, labels: ArrayLike) -> PiRatio:
    """π_intra, π_inter and π_ratio = π_intra/π_inter of Roth et al. 2020, by cosine distances.

    As in the authors' code: the mean over classes of the mean of 1 - cosine over the pairs of a
    class; the same over the pairs of class means; rows are on the unit sphere, as theirs are.
    Classes of one row have no pair and are left out. Blind to scale, not to place: in a cone both
    are small and the ratio stays. Rows that are one point have 0, 0 and NaN; `inter` is NaN for one
    class, `intra` where no class has two rows; the ratio is infinite where only `inter` is 0.

    >>> pi_ratio([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], [0, 0, 1, 1])
    PiRatio(intra=1.0, inter=1.0, ratio=1.0)
    """
    unit = unit_rows(x)
    layout = ClassLayout.of(labels, len(unit))
    gaps, means = [], []
    for members in np.split(unit[layout.order], layout.starts[1:]):
        # About the first row: the mean of equal rows need not be that row.
        means.append(members[0] + (members - members[0]).mean(axis=0))
        if len(members) > 1:
            gaps.append(mean_gap(members))
    intra = float(np.mean(gaps)) if gaps else math.nan
    inter = mean_gap(unit_rows(np.array(means)))
    if inter == 0.0:
        return PiRatio(intra, inter, math.inf if intra > 0 else math.nan)
    return PiRatio(intra, inter, intra / inter)
