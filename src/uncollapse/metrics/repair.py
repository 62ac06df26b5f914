"""Repairing a narrow embedding: what centring or whitening it gives to searches by cosine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse.metrics.collapse import spectrum

__all__ = ["ConeEffects", "CosineFigures", "cone_effects"]

CONE_ROWS = 2048  # of more rows, so many are looked at
_SHRINK = 0.1  # whitening: axes are divided by the root of their variance and so much of the mean's


@dataclass(frozen=True)
class CosineFigures:
    """Rows as they are, centred, or whitened (only of more rows than dimensions).

    80 % of their cosines are between `low` and `high`; `cosine` is the mean. `float16` and `int8`
    are the shares of rows that get another nearest neighbour, by cosine, when rows are kept so;
    `recall` is R@1 by cosine, None without labels.
    """

    name: str
    low: float
    cosine: float
    high: float
    float16: float
    int8: float
    recall: float | None


@dataclass(frozen=True)
class ConeEffects:
    """The figures of each treatment; `rows` of `of` rows were measured."""

    treatments: tuple[CosineFigures, ...]
    rows: int
    of: int


def cone_effects(z: Array, labels: Array | None = None, *, of: int | None = None) -> ConeEffects:
    """Measure rows `[N, dim]`, at least three, with or without labels; `of` is how many there are.

    >>> rng = np.random.default_rng(0)
    >>> effects = cone_effects(rng.normal(size=(200, 32)) + 30)
    >>> effects.treatments[0].float16 > 0.3 > 0.02 > effects.treatments[1].float16
    True
    """
    z = z / (np.abs(z).max() or 1.0)
    centred = z - z.mean(axis=0)
    white = _whitened(centred)
    treated = {"as they are": z, "centred": centred}
    treated |= {} if white is None else {"whitened": white}
    figures = tuple(_cosine_figures(name, rows, labels) for name, rows in treated.items())
    return ConeEffects(figures, len(z), len(z) if of is None else of)


def _cosine_figures(name: str, z: Array, labels: Array | None) -> CosineFigures:
    unit = _unit(z)
    cosines = unit @ unit.T
    pairs = cosines[np.triu_indices(len(unit), 1)]
    low, high = np.quantile(pairs, (0.1, 0.9)).tolist()
    nearest = _alone(cosines).argmax(axis=1)
    half = unit.astype(np.float16).astype(np.float64)
    halves = _alone((half @ half.T).astype(np.float16).astype(np.float64))
    whole = _unit(np.round(unit * (127 / (np.abs(unit).max() or 1.0))))
    wholes = _alone(whole @ whole.T)
    # Of those that tie, one is found by luck.
    float16, int8 = (
        1 - float(_best(kept)[np.arange(len(z)), nearest].mean()) for kept in (halves, wholes)
    )
    recall = None
    if labels is not None:
        ids = np.unique(labels, return_inverse=True)[1]
        several = np.bincount(ids)[ids] > 1  # R@1 is over rows whose class has another member
        right = (_best(cosines) * (ids[:, None] == ids)).sum(axis=1)
        recall = float(right[several].mean()) if several.any() else None
    return CosineFigures(name, low, float(pairs.mean()), high, float16, int8, recall)


def _best(cosines: Array) -> Array:
    """For each row its nearest one as 1, or those that tie, as shares of 1."""
    best = cosines >= cosines.max(axis=1, keepdims=True)
    return np.asarray(best / best.sum(axis=1, keepdims=True))


def _whitened(centred: Array) -> Array | None:
    """Principal axes at equal variance, shrunk so that axes of noise alone are not blown up.

    None for fewer rows than dimensions: whitened, these would all be at one distance.
    """
    principal = spectrum(centred)
    if principal.axes is None:
        return None
    variance = principal.values**2 / len(centred)
    scale = np.sqrt(variance + _SHRINK * variance.mean())
    return np.asarray(centred @ (principal.axes / np.where(scale > 0, scale, 1.0)))


def _unit(z: Array) -> Array:
    norms = np.linalg.norm(z, axis=1, keepdims=True)
    return np.asarray(z / np.where(norms > 0, norms, 1.0))


def _alone(cosines: Array) -> Array:
    """Set the diagonal to -inf, in place, so that no row is its own neighbour."""
    np.fill_diagonal(cosines, -np.inf)
    return cosines
