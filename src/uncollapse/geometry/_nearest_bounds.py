"""Certified lower bounds of HNM (13) and (15)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse.geometry._nearest_problem import Problem
from uncollapse.geometry._nearest_rows import cone_solver, quiet_settings

__all__ = ["certified_lower_bound"]

_GRAM_SIZE = 42  # points plus dimensions: the program then takes up to two seconds
_CROSS = -2.0  # of G_ab in a squared distance G_aa + G_bb - 2 G_ab
_TOLERANCE = 1e-7  # taken off a semidefinite program's dual value, far above its residuals


def certified_lower_bound(problem: Problem) -> float:
    """A distance that no separated points can be nearer than.

    For every α, L/2 <= d_iso and d_iso/2 <= d_haus. Small sets get a semidefinite bound too.
    """
    if problem.objective == "iso":
        return problem.loss / 2.0
    simple = problem.loss / 4.0
    return max(simple, _gram_bound(problem)) if sum(problem.x.shape) <= _GRAM_SIZE else simple


def _gram_bound(problem: Problem) -> float:
    """Smallest largest move when the points may use any number of dimensions.

    With G the Gram matrix of the points z, squared distances are linear in G, separation implies
    d²(a, p) <= t_a and t_a + α² <= d²(a, n), and G ⪰ z zᵀ is all that is kept of G = z zᵀ.
    Unknowns: the upper triangle of [[I, zᵀ], [z, G]] by columns, the t, and the squared move.
    """
    clarabel = cone_solver()
    x, ids = problem.x, problem.layout.ids
    n, dim = x.shape
    triangle = (dim + n) * (dim + n + 1) // 2
    radius, move = triangle + np.arange(n), triangle + n
    point = dim + np.arange(n)
    a, b = np.divmod(np.arange(n * n), n)  # the anchor is a positive of its own: t_a >= 0
    mates = ids[a] == ids[b]
    sign = np.where(mates, 1.0, -1.0)
    line, each = np.arange(len(a)), np.arange(n)
    axis = np.arange(dim)
    last = len(a)  # rows: first one for each ordered pair, then one for each point
    entries = [
        (line, _place(point[a], point[a]), sign),
        (line, _place(point[b], point[b]), sign),
        (line, _place(point[a], point[b]), _CROSS * sign),
        (line, radius[a], -sign),
        (last + each, _place(point, point), np.ones(n)),
        (last + np.repeat(each, dim), _place(axis, point[:, None]).ravel(), _CROSS * x.ravel()),
        (last + each, np.full(n, move), -np.ones(n)),
    ]
    rhs = np.concatenate([np.where(mates, 0.0, -(problem.alpha**2)), -np.square(x).sum(axis=1)])
    # The corner is the identity; then the whole triangle is positive semidefinite.
    i, j = np.triu_indices(dim)
    corner = len(rhs) + np.arange(len(i))
    entries.append((corner, _place(i, j), np.ones(len(i))))
    k, m = np.triu_indices(dim + n)
    whole = len(rhs) + len(i) + _place(k, m)
    entries.append((whole, _place(k, m), np.where(k == m, -1.0, -math.sqrt(2.0))))
    b_all = np.concatenate([rhs, (i == j).astype(float), np.zeros(triangle)])
    kinds = [
        clarabel.NonnegativeConeT(len(rhs)),
        clarabel.ZeroConeT(len(i)),
        clarabel.PSDTriangleConeT(dim + n),
    ]
    return _minimum(entries, b_all, kinds, move)


def _place(i: Array, j: Array) -> Array:
    """Where entry (i, j) of a symmetric matrix is in its upper triangle by columns."""
    low, high = np.minimum(i, j), np.maximum(i, j)
    place: Array = high * (high + 1) // 2 + low
    return place


def _minimum(
    entries: list[tuple[Array, Array, Array]], rhs: Array, kinds: list[Any], move: int
) -> float:
    """Root of the least squared move, from the dual side; 0 where the solver gave none."""
    from scipy import sparse

    rows, columns, values = (np.concatenate(part) for part in zip(*entries, strict=True))
    matrix = sparse.csc_matrix((values, (rows, columns)), shape=(len(rhs), move + 1))
    cost = np.zeros(move + 1)
    cost[move] = 1.0
    quadratic = sparse.csc_matrix((move + 1, move + 1))
    solver = cone_solver().DefaultSolver(quadratic, cost, matrix, rhs, kinds, quiet_settings())
    answer = solver.solve()
    if str(answer.status) != "Solved":
        return 0.0
    return math.sqrt(max(0.0, float(answer.obj_val_dual) - _TOLERANCE))
