"""HNM (13) and (15) by the convex-concave procedure, many starts, each step a cone program.

Only ‖a - n‖ >= t is not convex. It is replaced by u·(a - n) >= t for the direction u it has now,
which implies it; so a separated point stays separated, and no step is worse than the one before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse._base.progress import Report
from uncollapse.geometry._nearest_problem import Problem
from uncollapse.geometry._nearest_rows import ConeRows, quiet_settings

__all__ = ["solve_convex_concave"]

_SPARE = 2e-9  # margin asked for beyond alpha: what the cone solver's tolerance may lose
_WEIGHTS = (2.0, 10.0)  # of the slack in the first steps: a bad start need not give up its shape
_FULL_WEIGHT = 50.0
_CLOSE = 1e-3  # a start this near to the lower bound ends the search for others

Run = tuple[float, Array]  # what it reached (inf: not separated) and where


def solve_convex_concave(
    problem: Problem,
    starts: int,
    bound: float,
    rng: np.random.Generator,
    report: Report,
    warm: list[Array],
) -> Array | None:
    """The best separated points over the starts, or None; stops early at the lower bound."""
    step = _Step(problem)
    finalists = 3 if starts >= 8 else 1
    runs: list[Run] = []
    for k, start in zip(range(starts), _starts(problem, warm, rng), strict=False):
        runs.append(_descend(step, start, bound, 10, 1e-3, rng))
        report(k + 1, starts + finalists)
        if runs[-1][0] <= bound * (1.0 + _CLOSE):
            break
    runs.sort(key=lambda run: run[0])
    # Only the most promising runs are followed to the end.
    for k in range(min(finalists, len(runs))):
        runs.append(_descend(step, runs[k][1], bound, 60, 1e-6, rng))
        report(starts + k + 1, starts + finalists)
    value, z = min(runs, key=lambda run: run[0])
    return z if value < math.inf else None


def _descend(
    step: _Step, start: Array, bound: float, steps: int, tolerance: float, rng: np.random.Generator
) -> Run:
    """Steps from one start until they gain less than the tolerance."""
    z, before, reached = start, math.inf, math.inf
    for k in range(steps):
        weight = _WEIGHTS[k] if k < len(_WEIGHTS) else _FULL_WEIGHT
        answer = step(z, weight, rng)
        if answer is None:
            break
        z, value, slack = answer
        reached = value if slack <= 1e-6 else math.inf
        if reached <= bound * (1.0 + 1e-8):
            break
        if weight == _FULL_WEIGHT:
            total = value + weight * slack
            if before - total <= tolerance * total:
                break
            before = total
    return reached, z


def _starts(problem: Problem, warm: list[Array], rng: np.random.Generator) -> Iterator[Array]:
    """Classes shrunk about their jittered means; generic starts get stuck much higher.

    Distances, unlike places, often need to change so little that the points themselves do.
    """
    x = problem.x
    if problem.objective == "iso":
        yield x + 1e-3 * rng.standard_normal(x.shape)
    yield from warm
    means = problem.class_means(x)
    while True:
        for jitter in (0.0, 0.05, 0.15, 0.4):
            centres = (means + jitter * rng.standard_normal(means.shape))[problem.layout.ids]
            share = rng.uniform(0.3, 1.0)
            yield x + share * (centres - x) + 1e-3 * rng.standard_normal(x.shape)
        yield x + rng.choice([0.05, 0.2, 0.5]) * rng.standard_normal(x.shape)


class _Step:
    """One step. Unknowns: the points, a radius for each anchor, a length for each pair of
    classmates, the objective, and a slack by which a bad start may still miss the margin.
    """

    def __init__(self, problem: Problem) -> None:
        n, dim = problem.x.shape
        self.shape = n, dim
        self.pairs = i, j = np.triu_indices(n, 1)
        mates = problem.layout.ids[i] == problem.layout.ids[j]
        within, across = np.flatnonzero(mates), np.flatnonzero(~mates)
        radius = n * dim + np.arange(n)
        length = n * dim + n + np.arange(len(within))
        value, slack = n * dim + n + len(within) + np.arange(2)
        self.cost = np.zeros(slack + 1)
        self.cost[value] = 1.0
        rows = ConeRows(n, dim, len(self.cost))
        goal = problem.alpha + _SPARE + problem.rounding
        distance = problem.distances[i, j]
        iso = problem.objective == "iso"
        for end in (i, j):
            # length of a pair <= radius of either end
            rows.linear([(length, 1.0), (radius[end[within]], -1.0)], np.zeros(len(within)))
            # radius + alpha <= u·(z_i - z_j) + slack
            entries = [(radius[end[across]], 1.0), (np.full(len(across), slack), -1.0)]
            rows.linear(entries, np.full(len(across), -goal), pairs=across)
        if iso:
            # distance - value <= u·(z_i - z_j)
            rows.linear([(np.full(len(i), value), -1.0)], -distance, pairs=np.arange(len(i)))
        positive = np.concatenate([radius, [value, slack]])
        rows.linear([(positive, -1.0)], np.zeros(len(positive)))
        # ‖z_i - z_j‖ <= length of the pair
        rows.cones(length, np.zeros(len(within)), i[within], j[within])
        if iso:
            # ‖z_i - z_j‖ <= distance + value
            rows.cones(np.full(len(i), value), distance, i, j)
        else:
            # ‖z_i - x_i‖ <= value
            rows.cones(np.full(n, value), np.zeros(n), np.arange(n), offset=problem.x)
        self.rows = rows
        self.value, self.slack = value, slack
        self.settings = quiet_settings()

    def __call__(
        self, z: Array, weight: float, rng: np.random.Generator
    ) -> tuple[Array, float, float] | None:
        """The best points for the directions of z, what they reach, and the slack they need."""
        self.cost[self.slack] = weight
        i, j = self.pairs
        direction = z[i] - z[j]
        norm = np.linalg.norm(direction, axis=1)
        lost = norm < 1e-9
        direction[lost] = rng.standard_normal((int(lost.sum()), z.shape[1]))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        answer = self.rows.solve(self.cost, direction, self.pairs, self.settings)
        if answer is None:
            return None
        points = answer[: z.size].reshape(self.shape)
        return points, float(answer[self.value]), float(answer[self.slack])
