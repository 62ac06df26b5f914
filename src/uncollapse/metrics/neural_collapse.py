"""Neural collapse: NC1 to NC4 of Papyan, Han & Donoho 2020, and the CDNV of Galanti et al. 2022."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from uncollapse._base.arrays import Array, ArrayLike, label_array, points64
from uncollapse._base.check import InputError
from uncollapse.distances import pairwise_distances
from uncollapse.metrics._class_means import ClassMeans

__all__ = ["NC2", "cdnv", "nc1", "nc2", "nc3", "nc4"]

_BLOCK = 1 << 22  # numbers of a table of rows by classes that are held at a time


@dataclass(frozen=True)
class NC2:
    """How far the class means are from a simplex of equal sides; all 0 where they are one.

    `equinorm` is the standard deviation of their norms over the mean of them, `equiangular` that of
    their cosines, `maximal_angle` the mean of |cosine + 1/(C - 1)|.
    """

    equinorm: float
    equiangular: float
    maximal_angle: float


def nc1(x: ArrayLike, labels: ArrayLike) -> float:
    """Within-class over between-class variability, tr(Σ_W Σ_B⁺)/C: Papyan, Han & Donoho 2020.

    Classes weigh by their size in Σ_W and alike in Σ_B, as there. 0 when every class is a point;
    infinite when all class means coincide.

    >>> round(nc1([[0.0], [1.0], [4.0], [5.0]], [0, 0, 1, 1]), 6)
    0.03125
    """
    found = ClassMeans.of(x, labels)
    means, residuals = found.means, found.residuals
    left, values, _ = np.linalg.svd(found.centred.T, full_matrices=False)
    kept = values > max(means.shape) * 1e-15 * (values[0] if len(values) else 0.0)
    if not kept.any():
        return math.inf
    between = values[kept] ** 2 / len(means)
    along = ((residuals @ left[:, kept]) ** 2).mean(axis=0)
    return float((along / between).sum() / len(means))


def nc2(x: ArrayLike, labels: ArrayLike) -> NC2:
    """Convergence of the class means to a simplex: Papyan, Han & Donoho 2020, figures 2 to 4.

    The means are taken about their own mean, in which each class weighs alike; the deviation of the
    norms is the unbiased one, as in the authors' code. Blind to scale and place. NaN for fewer than
    two classes, and where all class means coincide.

    >>> nc2([[4.0, 1.0], [6.0, 1.0], [2.0, 1.0]], [0, 0, 1])
    NC2(equinorm=0.0, equiangular=0.0, maximal_angle=0.0)
    """
    means = ClassMeans.of(x, labels).centred
    count = len(means)
    norms = np.linalg.norm(means, axis=1)
    if count < 2 or not norms.any():
        return NC2(math.nan, math.nan, math.nan)
    unit = means / np.where(norms > 0, norms, 1.0)[:, None]
    ideal, pairs = -1 / (count - 1), count * (count - 1)
    off = square = far = 0.0
    step = max(1, _BLOCK // count)
    for low in range(0, count, step):
        gaps = unit[low : low + step] @ unit.T - ideal
        gaps[np.arange(len(gaps)), low + np.arange(len(gaps))] = 0.0
        off, square = off + float(gaps.sum()), square + float((gaps**2).sum())
        far += float(np.abs(gaps).sum())
    spread = math.sqrt(max(square / pairs - (off / pairs) ** 2, 0.0))
    return NC2(float(norms.std(ddof=1) / norms.mean()), spread, far / pairs)


def nc3(x: ArrayLike, labels: ArrayLike, weight: ArrayLike) -> float:
    """Self-duality, |W/|W| - M/|M||²: Papyan, Han & Donoho 2020, figure 5 (Frobenius norms).

    `weight` `[C, dim]` is the classifier's, its rows in the order of the sorted labels; M are the
    class means about their own mean. From 0, the same up to scale, to 4, opposite. NaN where all
    class means coincide, or all weights are 0.

    >>> nc3([[1.0, 0.0], [0.0, 1.0]], [0, 1], [[2.0, -2.0], [-2.0, 2.0]])
    0.0
    """
    found = ClassMeans.of(x, labels)
    rows = _weights(weight, found)
    sizes = float(np.linalg.norm(found.centred)), float(np.abs(rows).max())
    if 0.0 in sizes:
        return math.nan
    rows = rows / sizes[1]
    return float(((rows / np.linalg.norm(rows) - found.centred / sizes[0]) ** 2).sum())


def nc4(x: ArrayLike, labels: ArrayLike, predictions: ArrayLike) -> float:
    """Share of rows whose nearest class mean is not what was predicted: Papyan et al. 2020, fig. 7.

    `predictions` are the classifier's, one a row; a class that no row has is never nearest. With
    `predictions=labels` it is the error of the nearest class mean, for embeddings that have no
    classifier. A tie counts as not nearest, so rows that are one point have 1.0; with one class it
    is 0.

    >>> nc4([[0.0], [1.0], [4.0], [5.0]], [0, 0, 1, 1], [0, 0, 0, 1])
    0.25
    """
    found = ClassMeans.of(x, labels)
    wanted = _ids_of(predictions, found)
    means, agree = torch.from_numpy(found.means), 0
    step = max(1, _BLOCK // len(means))
    for low in range(0, len(wanted), step):
        block = torch.from_numpy(found.rows[low : low + step])
        squares = pairwise_distances(block, means, squared=True).numpy()
        known = np.flatnonzero(wanted[low : low + step] >= 0)
        column = wanted[low + known]
        own = squares[known, column]
        squares[known, column] = np.inf
        agree += int((own < squares[known].min(axis=1)).sum())
    return 1 - agree / len(wanted)


def cdnv(x: ArrayLike, labels: ArrayLike) -> float:
    """Class-distance normalised variance, mean over pairs of classes: Galanti et al. 2022.

    (Var_a + Var_b) / (2 |μ_a - μ_b|²). 0 when every class is a point; infinite when two class means
    coincide and a class is not a point; NaN for one class.

    >>> cdnv([[0.0], [1.0], [4.0], [5.0]], [0, 0, 1, 1])
    0.015625
    """
    found = ClassMeans.of(x, labels)
    means, residuals, layout = found.means, found.residuals, found.layout
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


def _weights(weight: ArrayLike, found: ClassMeans) -> Array:
    rows = points64(weight, "weight")
    if rows.shape != found.means.shape:
        allowed = f"{found.means.shape}, a row of x's width for each class"
        raise InputError("weight", f"shape {rows.shape}", allowed)
    return rows


def _ids_of(predictions: ArrayLike, found: ClassMeans) -> Array:
    """Class numbers of the predictions; -1 for a class that no row has."""
    given = label_array(predictions, len(found.rows), "predictions")
    numbers = {label: i for i, label in enumerate(found.layout.classes.tolist())}
    ids = np.array([numbers.get(label, -1) for label in given.tolist()])
    if (ids < 0).all():
        seen = f"none of the {len(numbers)} classes in labels, such as {given.tolist()[0]!r}"
        raise InputError("predictions", seen, "labels of the same kind as in labels")
    return ids
