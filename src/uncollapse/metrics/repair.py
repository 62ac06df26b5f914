"""Repairing a narrow embedding: centre or whiten it, and measure what searches by cosine gain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from uncollapse._base.arrays import Array, ArrayLike, label_array, points
from uncollapse._base.check import InputError, check_choice, check_int
from uncollapse.distances import unit_rows
from uncollapse.metrics.collapse import directions
from uncollapse.metrics.comparison import PairedRecall, paired_recall, shares_in_common
from uncollapse.metrics.nearest_rows import nearest_of
from uncollapse.metrics.ranking import check_directions, sample_queries
from uncollapse.metrics.retrieval_scores import retrieval

REPAIRS = ("centre", "whiten", "remove-top")
CONE_ROWS = 2048  # of more rows, so many are looked at
_SHRINK = 0.1  # whitening: axes are divided by the root of their variance and so much of the mean's
_CHUNK = 1 << 14  # rows converted to float64 together
_LEAST = 16  # rows: half of them are searched


@dataclass(frozen=True)
class Transform:
    """`(rows - mean) @ matrix`."""

    mean: Array
    matrix: Array

    def apply(self, rows: Array) -> Array:
        """The transformed rows as float32."""
        moved = np.empty((len(rows), self.matrix.shape[1]), np.float32)
        for low in range(0, len(rows), _CHUNK):
            moved[low : low + _CHUNK] = (rows[low : low + _CHUNK] - self.mean) @ self.matrix
        return moved


def fit_transform(rows: Array, how: str, top: int = 0) -> Transform:
    """One of `REPAIRS`: subtract the mean; then whiten, or remove the `top` principal axes.

    Whitening divides principal axes by their deviation, shrunk so that axes of noise alone are not
    blown up.
    """
    mean, dim = rows.mean(axis=0, dtype=np.float64), rows.shape[1]
    if how == "centre":
        return Transform(mean, np.eye(dim))
    squares = np.zeros((dim, dim))
    for low in range(0, len(rows), _CHUNK):
        centred = rows[low : low + _CHUNK] - mean
        squares += centred.T @ centred
    variance, axes = np.linalg.eigh(squares / len(rows))
    variance, axes = np.maximum(variance[::-1], 0.0), axes[:, ::-1]
    if how == "remove-top":
        return Transform(mean, np.eye(dim) - axes[:, :top] @ axes[:, :top].T)
    scale = np.sqrt(variance + _SHRINK * variance.mean())
    return Transform(mean, axes / np.where(scale > 0, scale, 1.0))


@dataclass(frozen=True)
class Repair:
    """A transform fitted on one half of the rows, and what it does to the other half.

    `before` and `after` are of at most 2,048 of these; `kept` is the mean share of the 10 nearest
    rows by cosine that stay so. `recalls` has R@1 by `cosine` and by `euclidean` distance; it is
    empty without labels.
    """

    transform: Transform
    before: CosineFigures
    after: CosineFigures
    kept: float
    recalls: Mapping[str, PairedRecall]


def fit_repair(
    embeddings: ArrayLike, labels: ArrayLike | None = None, *, how: str = "centre", top: int = 0
) -> Repair:
    """Fit one of `REPAIRS` on a random half of the rows and judge it on the other half.

    >>> rng = np.random.default_rng(0)
    >>> repair = fit_repair(rng.normal(size=(400, 32)) + 30)
    >>> repair.before.float16 > 0.2 > 0.02 > repair.after.float16
    True
    """
    checked = points(embeddings, "embeddings", min_rows=_LEAST).detach().cpu()
    check_directions(checked, names=["embeddings"])
    rows = checked.numpy()
    (n, dim), half = rows.shape, len(rows) // 2
    known = label_array(range(n) if labels is None else labels, n)
    check_choice("how", how, REPAIRS)
    if how == "remove-top" and not 1 <= check_int("top", top) < dim:
        raise InputError("top", top, f"1 to {dim - 1} of {dim} axes")
    if how == "whiten" and half <= dim:
        given = f"{n:,} rows of {dim:,} dimensions"
        raise InputError("embeddings", given, f"at least {2 * dim + 2:,} rows to whiten by")
    order = np.random.default_rng(0).permutation(n)
    transform = fit_transform(rows[np.sort(order[:half])], how, top)
    judged = np.sort(order[half:])
    old = rows[judged]
    new = transform.apply(old)
    check_directions(torch.from_numpy(new), names=["the repaired rows"])
    queries, few = sample_queries(len(old)), sample_queries(len(old), CONE_ROWS)
    recalls: dict[str, PairedRecall] = {}
    for metric in () if labels is None else ("cosine", "euclidean"):
        recall = paired_recall(old, new, known[judged], queries, normalize=metric == "cosine")
        recalls |= {} if recall is None else {metric: recall}
    k, units = min(10, len(old) - 1), (unit_rows(torch.from_numpy(z)) for z in (old, new))
    kept = shares_in_common(*(nearest_of(z, queries, k) for z in units)).mean()
    before, after = (_cosine_figures("", z[few].astype(np.float64), None) for z in (old, new))
    return Repair(transform, before, after, float(kept), recalls)


# What a cone does to searches by cosine.


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


def cone_effects(z: Array, labels: Array | None = None) -> list[CosineFigures]:
    """Figures of rows `[N, dim]`, at least three, for each treatment; with or without labels.

    >>> rng = np.random.default_rng(0)
    >>> now, centred, whitened = cone_effects(rng.normal(size=(200, 32)) + 30)
    >>> now.float16 > 0.3 > 0.02 > centred.float16
    True
    """
    z = z / (np.abs(z).max() or 1.0)
    treated = {"as they are": z, "centred": z - z.mean(axis=0)}
    if len(z) > z.shape[1]:  # fewer rows, whitened, would all be at one distance
        treated["whitened"] = fit_transform(z, "whiten").apply(z).astype(np.float64)
    return [_cosine_figures(name, rows, labels) for name, rows in treated.items()]


def _cosine_figures(name: str, z: Array, labels: Array | None) -> CosineFigures:
    unit = directions(z)
    cosines = unit @ unit.T
    pairs = cosines[np.triu_indices(len(unit), 1)]
    low, high = np.quantile(pairs, (0.1, 0.9)).tolist()
    nearest = _alone(cosines).argmax(axis=1)
    half = unit.astype(np.float16).astype(np.float64)
    halves = _alone((half @ half.T).astype(np.float16).astype(np.float64))
    whole = directions(np.round(unit * (127 / (np.abs(unit).max() or 1.0))))
    wholes = _alone(whole @ whole.T)
    # Of those that tie, one is found by luck.
    float16, int8 = (
        1 - float(_best(kept)[np.arange(len(z)), nearest].mean()) for kept in (halves, wholes)
    )
    recall = None
    if labels is not None:
        # Of directions the distances order as the cosines do; a row of zeros is as far from all.
        scores = retrieval(unit, labels, ks=(1,), normalize=False, progress=False)
        recall = scores.recall[1] if scores.queries > scores.queries_without_match else None
    return CosineFigures(name, low, float(pairs.mean()), high, float16, int8, recall)


def _best(cosines: Array) -> Array:
    """For each row its nearest one as 1, or those that tie, as shares of 1."""
    best = cosines >= cosines.max(axis=1, keepdims=True)
    return np.asarray(best / best.sum(axis=1, keepdims=True))


def _alone(cosines: Array) -> Array:
    """Set the diagonal to -inf, in place, so that no row is its own neighbour."""
    np.fill_diagonal(cosines, -np.inf)
    return cosines
