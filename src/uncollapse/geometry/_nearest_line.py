"""HNM (13) and (15) exactly for points on a line: one small linear program per order of the points.

On a line a set is α-triplet-separated if and only if its classes are disjoint intervals and each
gap between neighbours is at least α plus the longer of the two. So only orders that keep classes
together are tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise, permutations, product

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse._base.progress import Report
from uncollapse.geometry._nearest_problem import Problem

__all__ = ["line_orders", "solve_line"]


def line_orders(problem: Problem) -> int:
    """How many linear programs `solve_line` would solve."""
    orders = math.factorial(len(problem.layout.counts))
    if problem.objective == "haus":
        return orders
    # An order and its mirror image are the same to an isometric error.
    return orders * math.prod(math.factorial(k) for k in problem.layout.counts.tolist()) // 2


def solve_line(problem: Problem, report: Report) -> tuple[Array, float]:
    """The nearest separated points and the optimal value of the linear program that found them."""
    best_value, best = math.inf, problem.x
    total = line_orders(problem)
    solver = _isometric if problem.objective == "iso" else _displaced
    for done, (value, z) in enumerate(solver(problem), 1):
        report(done, total)
        if value < best_value:
            best_value, best = value, z
    return best, best_value


def _displaced(problem: Problem) -> Iterator[tuple[float, Array]]:
    """Smallest largest move, for each order of the classes.

    Inside a class the order may be kept (swapping two targets never helps), and the best target of
    a point is the nearest one of its class's interval [low, high].
    """
    x, ids = problem.x[:, 0], problem.layout.ids
    classes = len(problem.layout.counts)
    first, last = _extremes(problem)
    identity = np.eye(2 * classes + 1)
    low, high, move = identity[:classes], identity[classes:-1], identity[-1]
    # low <= first + move, high >= last - move, low <= high.
    fixed = [low - move, -high - move, low - high]
    fixed_rhs = np.concatenate([first, -last, np.zeros(classes)])
    for order in permutations(range(classes)):
        rows = [
            length - (low[b] - high[a])  # gap >= length of either + alpha
            for a, b in pairwise(order)
            for length in (high[a] - low[a], high[b] - low[b])
        ]
        rhs = np.concatenate([fixed_rhs, np.full(len(rows), -problem.alpha - problem.rounding)])
        v = _minimise(move, np.vstack([*fixed, *rows]), rhs)
        ends = v[:classes][ids], v[classes:-1][ids]
        yield float(v[-1]), np.clip(x, *ends)[:, None]


def _isometric(problem: Problem) -> Iterator[tuple[float, Array]]:
    """Smallest largest change of a distance, for each order of the points that keeps classes whole.

    With the order fixed every distance is a sum of gaps; the gaps and the change are the unknowns.
    """
    n, ids = len(problem.x), problem.layout.ids
    members = [problem.layout.members(c).tolist() for c in range(len(problem.layout.counts))]
    left, right = np.triu_indices(n, 1)
    # Distance between places i < j: the gaps i, ..., j - 1.
    column = np.arange(n - 1)
    spans = ((column >= left[:, None]) & (column < right[:, None])).astype(float)
    change = np.eye(n)[-1]
    spans = np.hstack([spans, np.zeros((len(spans), 1))])
    for classes in permutations(range(len(members))):
        for parts in product(*(permutations(members[c]) for c in classes)):
            order = np.array([i for part in parts for i in part])
            if order[0] > order[-1]:
                continue
            target = problem.distances[order[left], order[right]]
            ends = np.flatnonzero(np.diff(ids[order]))  # the gap after place e parts two classes
            bounds = np.concatenate([[-1], ends, [n - 1]])
            inside = [
                np.eye(n)[lo + 1 : hi].sum(axis=0) for lo, hi in pairwise(bounds)
            ]  # length of each class, as a sum of its gaps
            rows = [
                length - np.eye(n)[e]
                for k, e in enumerate(ends)
                for length in (inside[k], inside[k + 1])
            ]
            rhs = np.concatenate(
                [target, -target, np.full(len(rows), -problem.alpha - problem.rounding)]
            )
            v = _minimise(change, np.vstack([spans - change, -spans - change, *rows]), rhs, 0.0)
            z = np.empty((n, 1))
            z[order, 0] = np.concatenate([[0.0], np.cumsum(v[:-1])])
            yield float(v[-1]), z


def _extremes(problem: Problem) -> tuple[Array, Array]:
    classes = len(problem.layout.counts)
    first, last = np.full(classes, np.inf), np.full(classes, -np.inf)
    np.minimum.at(first, problem.layout.ids, problem.x[:, 0])
    np.maximum.at(last, problem.layout.ids, problem.x[:, 0])
    return first, last


def _minimise(cost: Array, rows: Array, rhs: Array, low: float | None = None) -> Array:
    """argmin of cost·v subject to rows·v <= rhs; every program here is feasible and bounded."""
    from scipy.optimize import linprog

    bounds = [(low, None)] * (len(cost) - 1) + [(0.0, None)]
    answer = linprog(cost, rows, rhs, bounds=bounds, method="highs")
    if answer.status != 0:
        raise RuntimeError(f"the linear program of an order was not solved: {answer.message}")
    solution: Array = answer.x
    return solution
