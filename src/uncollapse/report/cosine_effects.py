"""What a cone does to searches by cosine, and what centring or whitening would give: measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse.charts.numbers import percent
from uncollapse.health.verdict import cosine_text
from uncollapse.metrics.principal import spectrum

__all__ = ["CONE_ROWS", "ConeEffects", "Way", "cone_effects"]

CONE_ROWS = 2048  # of more rows, so many are looked at
_SHRINK = 0.1  # whitening: axes are divided by the root of their variance and so much of the mean's
_SPACING = float(np.finfo(np.float16).epsneg)  # of float16 just below 1


@dataclass(frozen=True)
class Way:
    """Rows as they are, centred, or whitened (only of more rows than dimensions).

    `float16` and `int8` are the shares of rows that get another nearest neighbour, by cosine, when
    rows are kept so; `recall` is R@1 by cosine, None without labels.
    """

    name: str
    cosine: float
    float16: float
    int8: float
    recall: float | None


@dataclass(frozen=True)
class ConeEffects:
    """`low` and `high` hold 80 % of the cosines between them; `rows` of `of` rows were measured."""

    low: float
    high: float
    ways: tuple[Way, ...]
    rows: int
    of: int

    @property
    def lead(self) -> str:
        """How many rows were measured, and what is left for a threshold."""
        low, high = cosine_text(self.low), cosine_text(self.high)
        some = f"{self.rows:,} rows" if self.rows == self.of else f"{self.rows:,} of {self.of:,}"
        return (
            f"Of {some}: 80 % of cosines lie in {low} to {high}; a threshold outside passes all "
            "pairs or none."
        )

    def __str__(self) -> str:
        now, centred = self.ways[:2]
        found = [
            self.lead,
            f"float16 (steps of {_SPACING:.2g}): {percent(now.float16)} of nearest neighbours "
            f"change; centred, {percent(centred.float16)}",
            f"int8 index: {percent(now.int8)} of nearest neighbours change; "
            f"centred, {percent(centred.int8)}",
        ]
        if now.recall is not None:
            scores = (f"{percent(way.recall)} {way.name}" for way in self.ways)
            found.append(f"R@1 by label: {', '.join(scores)}")
        return "\n".join(found)


def cone_effects(z: Array, labels: Array | None = None, *, of: int | None = None) -> ConeEffects:
    """Measure rows `[N, dim]`, at least three, with or without labels; `of` is how many there are.

    >>> rng = np.random.default_rng(0)
    >>> found = cone_effects(rng.normal(size=(200, 32)) + 30)
    >>> found.ways[0].float16 > 0.3 > 0.02 > found.ways[1].float16
    True
    """
    z = z / (np.abs(z).max() or 1.0)
    centred = z - z.mean(axis=0)
    white = _whitened(centred)
    ways = {"as they are": z, "centred": centred} | ({} if white is None else {"whitened": white})
    found = [_way(name, rows, labels) for name, rows in ways.items()]
    low, high = np.quantile(found[0][1], (0.1, 0.9)).tolist()
    several = tuple(way for way, _ in found)
    return ConeEffects(low, high, several, len(z), len(z) if of is None else of)


def _way(name: str, z: Array, labels: Array | None) -> tuple[Way, Array]:
    """What is measured of the rows, and their cosines, each pair once."""
    unit = _unit(z)
    cosines = unit @ unit.T
    pairs: Array = cosines[np.triu_indices(len(unit), 1)]
    nearest = _alone(cosines).argmax(axis=1)
    half = unit.astype(np.float16).astype(np.float64)
    halves = _alone((half @ half.T).astype(np.float16).astype(np.float64))
    whole = _unit(np.round(unit * (127 / (np.abs(unit).max() or 1.0))))
    way = Way(
        name,
        float(pairs.mean()),
        _changed(halves, nearest),
        _changed(_alone(whole @ whole.T), nearest),
        None if labels is None else _recall(cosines, labels),
    )
    return way, pairs


def _changed(cosines: Array, nearest: Array) -> float:
    """Share of rows whose nearest is another one now; of those that tie, one is found by luck."""
    best = cosines >= cosines.max(axis=1, keepdims=True)
    kept = best[np.arange(len(best)), nearest] / best.sum(axis=1)
    return float(1 - kept.mean())


def _recall(cosines: Array, labels: Array) -> float | None:
    """R@1 over the rows whose class has another member; among those that tie, the share."""
    ids = np.unique(labels, return_inverse=True)[1]
    several = np.bincount(ids)[ids] > 1
    if not several.any():
        return None
    best = cosines >= cosines.max(axis=1, keepdims=True)
    right = (best & (ids[:, None] == ids)).sum(axis=1) / best.sum(axis=1)
    return float(right[several].mean())


def _whitened(centred: Array) -> Array | None:
    """Principal axes at equal variance, shrunk so that axes of noise alone are not blown up.

    None for fewer rows than dimensions: whitened, these would all be at one distance.
    """
    found = spectrum(centred)
    if found.axes is None:
        return None
    variance = found.values**2 / len(centred)
    scale = np.sqrt(variance + _SHRINK * variance.mean())
    white: Array = centred @ (found.axes / np.where(scale > 0, scale, 1.0))
    return white


def _unit(z: Array) -> Array:
    norms = np.linalg.norm(z, axis=1, keepdims=True)
    unit: Array = z / np.where(norms > 0, norms, 1.0)
    return unit


def _alone(cosines: Array) -> Array:
    """The same array, in which no row is its own neighbour any more."""
    np.fill_diagonal(cosines, -np.inf)
    return cosines
