"""Separated points at any size: classes shrunk towards the centres of their enclosing balls.

With margin 0 classes shrunk to points are always separated, so that d_haus is at most the largest
enclosing radius; usually far less shrinking will do. With a margin the result is scaled up as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse._base.progress import Report
from uncollapse.distances import pairwise_distances
from uncollapse.geometry._nearest_problem import Problem

__all__ = ["enclosing_ball", "shrunk"]

_GRID = 10  # shares of the largest radius tried first
_SECTIONS = 6  # then the best one's neighbourhood is cut by a third this many times


def shrunk(problem: Problem, rng: np.random.Generator, report: Report) -> Array:
    """Separated points found without an optimiser, in some twenty passes over the distances."""
    classes = range(len(problem.layout.counts))
    balls = [enclosing_ball(problem.x[problem.layout.members(c)]) for c in classes]
    centres = np.array([centre for centre, _ in balls])
    radii = np.array([radius for _, radius in balls])
    found: dict[float, tuple[float, Array]] = {}

    def attempt(share: float) -> float:
        """Value after moving every class by at most `share` of the largest radius; inf if none."""
        if share not in found:
            z = problem.scaled(_moved(problem, centres, radii, share * float(radii.max())))
            found[share] = (math.inf, problem.x) if z is None else (problem.value(z), z)
            report(len(found), _GRID + 1 + 2 * _SECTIONS)
        return found[share][0]

    best = min(np.linspace(0.0, 1.0, _GRID + 1).tolist(), key=attempt)
    low, high = max(best - 1.0 / _GRID, 0.0), min(best + 1.0 / _GRID, 1.0)
    for _ in range(_SECTIONS):
        left, right = low + (high - low) / 3.0, high - (high - low) / 3.0
        if attempt(left) <= attempt(right) < math.inf:
            high = right
        else:
            low = left
    candidates = [*found.values()]
    if problem.alpha > 0.0:
        candidates += [(problem.value(z), z) for z in _spread(problem, centres, rng)]
    return min(candidates, key=lambda pair: pair[0])[1]


def enclosing_ball(points: Array, iterations: int = 300) -> tuple[Array, float]:
    """Centre and radius of a ball around the points, within a few percent of the smallest one."""
    centre = points.mean(axis=0)
    best, radius = centre, float(np.linalg.norm(points - centre, axis=1).max())
    for k in range(iterations if len(points) > 2 else 0):
        away = np.linalg.norm(points - centre, axis=1)
        far = int(away.argmax())
        if away[far] < radius:
            best, radius = centre, float(away[far])
        centre = centre + (points[far] - centre) / (k + 2)
    return best, radius


def _moved(problem: Problem, centres: Array, radii: Array, reach: float) -> Array:
    """Every class moved towards its centre, its outermost point by `reach` or all the way."""
    share = np.minimum(1.0, reach / np.maximum(radii, 1e-300))[problem.layout.ids][:, None]
    # Written so that a share of 1 puts the members of a class on exactly one point.
    moved: Array = (1.0 - share) * problem.x + share * centres[problem.layout.ids]
    return moved


def _spread(problem: Problem, centres: Array, rng: np.random.Generator) -> Iterator[Array]:
    """Classes shrunk to points, and the points pushed at least the margin apart, in two ways."""
    goal = (problem.alpha + problem.rounding) * (1.0 + 1e-9)
    yield _pushed_along_a_line(centres, goal)[problem.layout.ids]
    direction = rng.standard_normal(centres.shape)
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    low, high, apart = 0.0, 4.0 * goal, None
    for _ in range(20):
        middle = 0.5 * (low + high)
        z = centres + middle * direction
        distance = pairwise_distances(z).numpy()
        np.fill_diagonal(distance, np.inf)
        if distance.min() >= goal:
            high, apart = middle, z
        else:
            low = middle
    if apart is not None:
        yield apart[problem.layout.ids]


def _pushed_along_a_line(centres: Array, goal: float) -> Array:
    """Moved along the main axis, as little as makes neighbours there `goal` apart."""
    middle = centres - centres.mean(axis=0)
    axis = np.linalg.svd(middle, full_matrices=False)[2][0]
    place = middle @ axis
    order = np.argsort(place, kind="stable")
    steps = goal * np.arange(len(order))
    # Places minus steps must not decrease; halfway between the two running extremes is the
    # nearest such sequence in the largest-move sense.
    free = place[order] - steps
    up = np.maximum.accumulate(free)
    down = np.minimum.accumulate(free[::-1])[::-1]
    target = np.empty_like(place)
    target[order] = 0.5 * (up + down) + steps
    moved: Array = centres + (target - place)[:, None] * axis
    return moved
