"""Figures of collapse that need no verdict: rank, neural collapse, distances, thickness bracket."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, points, points64
from uncollapse._base.check import check_number
from uncollapse._base.classes import ClassLayout
from uncollapse.distances import binary_scale, centre
from uncollapse.geometry import Thickness, thickness

__all__ = [
    "Spectrum",
    "cdnv",
    "effective_rank",
    "nc1",
    "principal_axes",
    "spectrum",
    "thickness_bracket",
]


_EXACT_DIM = 3  # up to here the smallest width is found exactly, and quickly
_EXACT_ROWS = 2048
_ZERO = 1e-14  # eigenvalues below this share of the largest are rounding


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
    rows = centre(points(x)).cpu().numpy()
    scale = float(np.abs(rows).max()) or 1.0
    rows = rows / scale
    if len(rows) <= rows.shape[1]:
        squares, axes = np.linalg.eigvalsh(rows @ rows.T)[::-1], None
    else:
        squares, axes = np.linalg.eigh(rows.T @ rows)
        squares, axes = squares[::-1], axes[:, ::-1]
    squares = np.where(squares > _ZERO * max(squares[0], 0.0), squares, 0.0)
    return Spectrum(np.sqrt(squares) * scale, axes, len(rows))


def effective_rank(x: ArrayLike | Spectrum) -> float:
    """Exponential of the entropy of the singular values (RankMe, Garrido et al. 2023), centred.

    Uncentred, a point far from the origin would give 1 whatever is inside. 0 for a single point.

    >>> round(effective_rank([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), 6)
    2.0
    """
    values = (x if isinstance(x, Spectrum) else spectrum(x)).values
    total = float(values.sum())
    if total == 0.0:
        return 0.0
    shares = values[values > 0] / total
    return float(np.exp(-(shares * np.log(shares)).sum()))


def principal_axes(x: ArrayLike | Spectrum, share: float = 0.99) -> int:
    """How many principal axes hold `share` of the variance; 0 for a single point.

    Less moved by noise in many dimensions than `effective_rank`: what the verdict looks at.

    >>> principal_axes([[1.0, 0.01], [-1.0, 0.0], [0.0, 0.0]])
    1
    """
    check_number("share", share, 0.0, 1.0)
    cumulated = np.cumsum((x if isinstance(x, Spectrum) else spectrum(x)).shares)
    if cumulated[-1] == 0.0:
        return 0
    return int(np.searchsorted(cumulated, share * (1 - 1e-12)) + 1)


def nc1(x: ArrayLike, labels: ArrayLike) -> float:
    """Within-class over between-class variability, tr(Σ_W Σ_B⁺)/C: Papyan, Han & Donoho 2020.

    Classes weigh by their size in Σ_W and alike in Σ_B, as there. 0 when every class is a point;
    infinite when all class means coincide.

    >>> round(nc1([[0.0], [1.0], [4.0], [5.0]], [0, 0, 1, 1]), 6)
    0.03125
    """
    means, residuals, _ = _by_class(x, labels)
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
    means, residuals, layout = _by_class(x, labels)
    variance = np.bincount(layout.ids, (residuals**2).sum(axis=1)) / layout.counts
    a, b = np.triu_indices(len(means), 1)
    if len(a) == 0:
        return math.nan
    total = 0.0
    for i in range(0, len(a), 1 << 16):
        rows, columns = a[i : i + (1 << 16)], b[i : i + (1 << 16)]
        apart = ((means[rows] - means[columns]) ** 2).sum(axis=1)
        both = variance[rows] + variance[columns]
        # Two points at one place are not variable beside their distance: 0/0 is 0 here.
        safe = np.where(apart > 0, apart, 1.0)
        ratio = np.where(apart > 0, both / (2 * safe), np.where(both > 0, np.inf, 0.0))
        total += float(ratio.sum())
    return total / len(a)


def thickness_bracket(x: Tensor, found: Spectrum) -> Thickness:
    """Bracket of the smallest width, cheap in any dimension: HNM (9a).

    Exact up to three dimensions and 2048 rows, and when the set is flat. Otherwise from the
    principal axes: below 2·sqrt(λ_min) of the covariance, above the width along the flattest axis.

    `found` is the spectrum of some or all of the rows: a subset is no wider than the set.
    """
    width = x.shape[1]
    if len(x) <= width:
        return Thickness(0.0, 0.0, True, np.eye(1, width)[0])
    if width <= _EXACT_DIM and len(x) <= _EXACT_ROWS:
        return thickness(x)
    if found.axes is None:
        return Thickness(0.0, math.inf, False, np.eye(1, width)[0])
    lower = 2 * float(found.values[-1]) / math.sqrt(found.rows) * (1 - 1e-6)
    direction = found.axes[:, -1]
    towards = torch.from_numpy(np.ascontiguousarray(direction))
    first = x[0].double()
    along = torch.cat([(chunk.double() - first) @ towards for chunk in torch.split(x, 1 << 16)])
    upper = float(along.max() - along.min())
    return Thickness(min(lower, upper), upper, False, direction)


def _by_class(x: ArrayLike, labels: ArrayLike) -> tuple[Array, Array, ClassLayout]:
    """Class means (about the common centre), each row minus its class's, and the layout."""
    rows = points64(x)
    rows = rows / binary_scale(float(np.abs(rows).max()))  # squares stay in range; ratios stay
    rows = rows - rows[0]
    rows = rows - rows.mean(axis=0)
    layout = ClassLayout.of(labels, len(rows))
    ordered = rows[layout.order]
    means = np.add.reduceat(ordered, layout.starts, axis=0) / layout.counts[:, None]
    return means, rows - means[layout.ids], layout
