"""Isometries and distances between point sets: HNM (7), (8), (10), (12), (14) and (23)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, ClassLayout, points64
from uncollapse._base.check import InputError, check_choice, check_paired
from uncollapse.distances import paired_distances, pairwise_distances

_BLOCK = 1 << 20  # distances held at a time
_STARTS = 12
_POLISH_DIM, _POLISH_ROWS = 6, 300  # beyond these the reweighted answer is left as it is


@dataclass(frozen=True)
class Isometry:
    """The map U(x) = matrix · x + offset, and its error as an approximation.

    `error` is the largest residual for `norm="sup"`, the root mean square one for `norm="l2"`. No
    isometry has an error below `lower_bound`.
    """

    matrix: Array
    offset: Array
    error: float
    lower_bound: float

    def __call__(self, x: ArrayLike) -> Array:
        """Apply the isometry to the rows of `x`."""
        return np.asarray(points64(x) @ self.matrix.T + self.offset)


def isometric_error(x: ArrayLike, x_star: ArrayLike) -> float:
    """Largest difference between two embeddings' distances over all pairs of samples: HNM (14).

    Also the smallest ε for which the map from each row of `x` to the same row of `x_star` is an
    ε-near-isometry, HNM (7). The two embeddings may have different dimensions.

    >>> isometric_error([[0.0], [1.0]], [[5.0], [9.0]])
    3.0
    """
    first, second = points64(x), points64(x_star, "x_star")
    if len(first) != len(second):
        raise InputError("x_star", f"{len(second)} rows", f"{len(first)}, one for each row of x")
    step = max(1, _BLOCK // len(first))
    worst = 0.0
    for i in range(0, len(first), step):
        # Pairs (i, j) with j >= i cover every pair once.
        here = pairwise_distances(first[i : i + step], first[i:])
        there = pairwise_distances(second[i : i + step], second[i:])
        worst = max(worst, float((here - there).abs().max()))
    return worst


def best_isometry(x: ArrayLike, y: ArrayLike, norm: str = "sup") -> Isometry:
    """The isometry U of the space that brings the rows of `x` nearest to those of `y`: HNM (8).

    `norm="l2"` is Kabsch's closed form, reflections allowed, and exact. `norm="sup"`, the one of
    the theorem (10), reweights it (Lawson): for any weights the weighted optimum is at most the
    largest residual of any isometry, hence the certified `lower_bound`. The problem is not convex,
    so a gap may remain; small sets are polished from several starts.

    >>> turned = best_isometry([[0.0, 0.0], [1.0, 0.0]], [[2.0, 2.0], [2.0, 3.0]])
    >>> round(turned.error, 12)
    0.0
    """
    check_choice("norm", norm, ("sup", "l2"))
    source, target = points64(x), points64(y, "y")
    check_paired(source, target, ("x", "y"))
    uniform = np.full(len(source), 1.0 / len(source))
    if norm == "l2":
        matrix, offset, residual = _kabsch(source, target, uniform)
        error = float(np.sqrt(np.mean(residual**2)))
        return Isometry(matrix, offset, error, error)
    rng = np.random.default_rng(0)
    best = _lawson(source, target, uniform)
    for _ in range(_STARTS):
        if best.error - best.lower_bound <= 1e-6 * best.error:
            break
        other = _lawson(source, target, rng.dirichlet(np.full(len(source), 0.3)) + 1e-9)
        if source.shape[1] <= _POLISH_DIM and len(source) <= _POLISH_ROWS:
            other = _polished(source, target, other)
        lower = max(best.lower_bound, other.lower_bound)
        winner = other if other.error < best.error else best
        best = replace(winner, lower_bound=min(lower, winner.error))
    return best


def _kabsch(source: Array, target: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Weighted least-squares isometry; returns matrix, offset and the residual of each row."""
    weights = weights / weights.sum()
    # Two passes keep the centroids exact far from the origin.
    from_ = source[0] + weights @ (source - source[0])
    to = target[0] + weights @ (target - target[0])
    left, _, right = np.linalg.svd(((target - to) * weights[:, None]).T @ (source - from_))
    matrix = left @ right
    residual = np.linalg.norm((target - to) - (source - from_) @ matrix.T, axis=1)
    return matrix, to - matrix @ from_, residual


def _lawson(source: Array, target: Array, weights: Array, iterations: int = 400) -> Isometry:
    """Minimax isometry by reweighting each row with its residual."""
    best, lower = Isometry(np.empty(0), np.empty(0), np.inf, 0.0), 0.0
    for _ in range(iterations):
        weights = weights / weights.sum()
        matrix, offset, residual = _kabsch(source, target, weights)
        lower = max(lower, float(np.sqrt(weights @ residual**2)))
        if residual.max() < best.error:
            best = Isometry(matrix, offset, float(residual.max()), 0.0)
        if best.error - lower <= 1e-9 * best.error:
            break
        weights = weights * residual
    return replace(best, lower_bound=min(lower, best.error))


def _polished(source: Array, target: Array, start: Isometry) -> Isometry:
    """Descend on the largest residual itself, turning by exp of a skew matrix and shifting."""
    from scipy.linalg import expm
    from scipy.optimize import minimize

    n = source.shape[1]
    upper = np.triu_indices(n, 1)
    turns = len(upper[0])
    middle = source.mean(axis=0)
    base = (source - middle) @ start.matrix.T
    goal = target - start(middle[None])

    def turn(v: Array) -> Array:
        skew = np.zeros((n, n))
        skew[upper] = v[:turns]
        return np.asarray(expm(skew - skew.T))

    def room(v: Array) -> Array:
        residual = goal - base @ turn(v).T - v[turns:-1]
        return np.asarray(v[-1] ** 2 - (residual**2).sum(axis=1))

    solved = minimize(
        lambda v: v[-1],
        np.r_[np.zeros(turns + n), start.error * (1 + 1e-6)],
        jac=lambda v: np.r_[np.zeros(len(v) - 1), 1.0],
        constraints={"type": "ineq", "fun": room},
        method="SLSQP",
        options={"maxiter": 60, "ftol": 1e-10},
    )
    matrix = turn(solved.x) @ start.matrix
    offset = start(middle[None])[0] + solved.x[turns:-1] - matrix @ middle
    error = float(np.linalg.norm(target - source @ matrix.T - offset, axis=1).max())
    polished = Isometry(matrix, offset, error, start.lower_bound)
    return polished if error < start.error else start


def set_distance(a: ArrayLike, b: ArrayLike) -> float:
    """Smallest distance between a point of `a` and a point of `b`: EPS definition 1.

    >>> set_distance([[0.0], [2.0]], [[5.0], [9.0]])
    3.0
    """
    first, second = _two_sets(a, b)
    parts = torch.split(first, max(1, _BLOCK // len(second)))
    return min(float(pairwise_distances(part, second).min()) for part in parts)


def hausdorff(a: ArrayLike, b: ArrayLike) -> float:
    """Hausdorff distance d_H: how far a point of one set can be from the other set.

    >>> hausdorff([[0.0], [1.0]], [[0.0], [5.0]])
    4.0
    """
    first, second = _two_sets(a, b)
    return _directed(second, first, floor=_directed(first, second))


def hausdorff_like(x: ArrayLike, x_star: ArrayLike, labels: ArrayLike) -> float:
    """The paper's d_haus between two embeddings of the same samples: HNM (12).

    The largest, over classes, Hausdorff distance between the class's two images. It never exceeds
    the largest move of a sample, HNM (23): its own image is a candidate for its nearest point.

    >>> hausdorff_like([[0.0], [1.0]], [[1.0], [0.0]], [0, 0])
    0.0
    """
    first, second = points64(x), points64(x_star, "x_star")
    check_paired(first, second, ("x", "x_star"))
    layout = ClassLayout.of(labels, len(first))
    worst = 0.0
    for c in range(len(layout.classes)):
        rows = layout.members(c)
        a, b = torch.from_numpy(first[rows]), torch.from_numpy(second[rows])
        moved = paired_distances(a, b)
        worst = _directed(a, b, moved, floor=worst)
        worst = _directed(b, a, moved, floor=worst)
    return worst


def _directed(a: Tensor, b: Tensor, bound: Tensor | None = None, floor: float = 0.0) -> float:
    """max(floor, sup over a of the distance to b); `bound[i]` is an upper bound for row i."""
    if bound is not None:
        # Rows are worked through from the largest bound, until none can exceed what is known.
        order = torch.argsort(bound, descending=True, stable=True)
        a, bound = a[order], bound[order]
    step = max(1, _BLOCK // len(b))
    for i in range(0, len(a), step):
        if bound is not None and float(bound[i]) <= floor:
            break
        floor = max(floor, float(pairwise_distances(a[i : i + step], b).amin(dim=1).max()))
    return floor


def _two_sets(a: ArrayLike, b: ArrayLike) -> tuple[Tensor, Tensor]:
    first, second = points64(a, "a"), points64(b, "b")
    if first.shape[1] != second.shape[1]:
        raise InputError("b", f"{second.shape[1]} columns", f"{first.shape[1]} as in a")
    return torch.from_numpy(first), torch.from_numpy(second)
