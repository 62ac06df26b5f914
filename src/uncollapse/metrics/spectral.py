"""Figures of the spectrum, as published: RankMe, ρ-spectrum, α-ReQ and PCF."""

from __future__ import annotations

import math

import numpy as np

from uncollapse._base.arrays import Array, ArrayLike, points64
from uncollapse._base.check import InputError, check_int, check_number
from uncollapse.distances import binary_scale
from uncollapse.metrics.principal import spectrum

__all__ = ["alpha_req", "pcf", "rankme", "rho_spectrum"]


def rankme(x: ArrayLike, *, eps: float = 1e-7) -> float:
    """RankMe of Garrido et al. 2023: exp(-Σ p log p), p = σ/|σ|₁ + eps, of the rows as given.

    Not centred: a cone, or a set far from the origin, has about 1 whatever is inside; the centred
    one is `effective_rank`. From about 1 (a line) to min(N, dim); blind to scale. All rows one
    point: 1 (with eps a little more); all rows at the origin: 0.

    >>> round(rankme([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]), 4)
    2.0
    """
    check_number("eps", eps, 0.0, 1.0)
    values = _singular_values(x)
    return smooth_rank(values, eps)


def rho_spectrum(x: ArrayLike, *, skip: int = 0) -> float:
    """ρ of Roth et al. 2020: KL(uniform || σ/|σ|₁) over the singular values of the rows.

    0 when all directions are used alike, larger the faster the spectrum decays; not centred and
    blind to scale, as published. `skip` leaves out that many of the largest values: rho_spectrum@k
    of their code is `skip=k-1`. Infinite as soon as one direction is not used at all: so for rows
    that are one point, unless they have one column.

    >>> rho_spectrum([[1.0, 0.0], [0.0, 1.0]]), rho_spectrum([[1.0, 1.0], [2.0, 2.0]])
    (0.0, inf)
    """
    values = _singular_values(x)
    if check_int("skip", skip, 0) >= len(values):
        raise InputError("skip", skip, f"fewer than the {len(values)} singular values of x")
    values = values[skip:]
    if values[-1] == 0.0:
        return math.inf
    return float(-np.log(len(values) * (values / values.sum())).mean()) + 0.0


def alpha_req(x: ArrayLike, *, ranks: tuple[int, int] = (4, 100)) -> float:
    """α-ReQ of Agrawal et al. 2022: the exponent of λ_j ∝ j^-α, of the covariance's eigenvalues.

    A line through (log j, log λ_j) with weights 1/j, as in the authors' code (after Stringer et al.
    2019), over the ranks j from the first to the last of `ranks`, both included, as far as there
    are axes: min(N - 1, dim). Near 1 is what they find best; 0 is isotropic. Blind to scale and
    place. Infinite where an eigenvalue of that range is 0 (below 1e-14 of the largest), so for rows
    that are one point; NaN where there are fewer than two axes to fit.

    >>> x = np.diag([1.0, 0.5, 1 / 3, 0.25])
    >>> round(alpha_req(np.concatenate([x, -x]), ranks=(1, 4)), 6)
    2.0
    """
    first, last = _ranks(ranks)
    found = spectrum(x)
    last = min(last, found.rows - 1, np.shape(found.values)[0])
    if last <= first:
        return math.nan
    values = found.values[first - 1 : last]
    if values[-1] == 0.0:
        return math.inf
    rank = np.arange(first, last + 1, dtype=np.float64)
    weight = 1 / rank
    at, height = np.log(rank), 2 * np.log(values / values[0])  # eigenvalues are squares
    at = at - np.average(at, weights=weight)
    return float(-(weight * at * height).sum() / (weight * at * at).sum()) + 0.0


def pcf(x: ArrayLike, *, variance: float = 0.9) -> float:
    """Principal components fraction of open-metric-learning: share of the dim axes that are in use.

    The fewest axes that hold more than `variance` of the variance, over dim; with `variance=1` all
    that hold any (there the published code counts rounding). Blind to scale and place; at most
    min(N - 1, dim)/dim. 0 for rows that are one point.

    >>> pcf(np.eye(4, 10), variance=0.5)
    0.2
    """
    check_number("variance", variance, 0.0, 1.0)
    width = points64(x).shape[1]
    shares = spectrum(x).shares
    used = int((shares > 0).sum())
    # Equal axes that reach the bound exactly must not pass it by a rounding.
    enough = int(np.searchsorted(np.cumsum(shares), variance + 1e-12, side="right")) + 1
    return float(min(enough, used) / width)


def smooth_rank(values: Array, eps: float) -> float:
    """exp of the entropy of values over their sum, plus eps each; 0 where all are 0."""
    total = float(values.sum())
    if total == 0.0:
        return 0.0
    shares = values / total + eps
    shares = shares[shares > 0]
    return float(np.exp(-(shares * np.log(shares)).sum()))


def _singular_values(x: ArrayLike) -> Array:
    """Singular values of the rows as they are, largest first; what is only rounding is 0."""
    rows = points64(x)
    unit = binary_scale(float(np.abs(rows).max()))  # all figures here are blind to scale
    values: Array = np.linalg.svd(rows / unit, compute_uv=False)
    return np.where(values > max(rows.shape) * np.finfo(np.float64).eps * values[0], values, 0.0)


def _ranks(ranks: tuple[int, int]) -> tuple[int, int]:
    allowed = "two whole numbers, the first and the last rank of the fit, such as (4, 100)"
    if not isinstance(ranks, tuple | list) or len(ranks) != 2:
        raise InputError("ranks", ranks, allowed)
    first, last = (check_int("ranks", rank) for rank in ranks)
    if last <= first:
        raise InputError("ranks", ranks, allowed)
    return first, last
