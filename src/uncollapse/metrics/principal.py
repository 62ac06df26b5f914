"""Principal axes of a point set: its spectrum about the mean, its effective rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from uncollapse._base.arrays import Array, ArrayLike, points64
from uncollapse._base.check import check_number
from uncollapse.distances import binary_scale

__all__ = ["Spectrum", "effective_rank", "principal_axes", "spectrum"]

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
    wide = points64(x)
    unit = binary_scale(float(np.abs(wide).max()))  # squares stay in range
    wide = wide / unit
    rows = wide - wide[0]  # first: the mean of equal numbers need not be that number
    rows = rows - rows.mean(axis=0)
    scale = float(np.abs(rows).max()) or 1.0
    rows = rows / scale
    if len(rows) <= rows.shape[1]:
        squares, axes = np.linalg.eigvalsh(rows @ rows.T)[::-1], None
    else:
        squares, axes = np.linalg.eigh(rows.T @ rows)
        squares, axes = squares[::-1], axes[:, ::-1]
    squares = np.where(squares > _ZERO * max(squares[0], 0.0), squares, 0.0)
    return Spectrum(np.sqrt(squares) * scale * unit, axes, len(rows))


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
