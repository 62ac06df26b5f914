"""Thickness of a point set and the constant of the isometric approximation property: HNM (9a)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from uncollapse._base.arrays import Array, ArrayLike, points64
from uncollapse._base.check import check_int
from uncollapse.geometry.diameters import diameter

__all__ = ["Thickness", "iap_constant", "thickness"]

# Most hull vertices for which the hull of all their differences is still quick, by dimension.
_EXACT_VERTICES = {2: 10_000, 3: 200, 4: 60, 5: 26, 6: 14}


@dataclass(frozen=True)
class Thickness:
    """Bracket of the smallest width: lower <= θ <= upper, equal when `exact`.

    `direction` is a unit vector along which the set is `upper` wide.
    """

    lower: float
    upper: float
    exact: bool
    direction: Array


def thickness(x: ArrayLike, *, starts: int = 6, iterations: int = 200) -> Thickness:
    """Smallest width of the set over all directions: HNM (9a).

    Exact when the set is flat (0, always so for N <= n points), in one dimension, and for few
    points in up to six dimensions. Otherwise a certified bracket: `starts` descents by linear
    programmes from above, `iterations` of reweighted covariance from below.

    >>> square = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    >>> thickness(square).upper
    1.0
    """
    check_int("starts", starts), check_int("iterations", iterations)
    array = points64(x)
    centred = array - array[0]
    centred -= centred.mean(axis=0)
    scale = float(np.abs(centred).max()) or 1.0
    found = _thickness(centred / scale, starts, iterations)
    return Thickness(found.lower * scale, found.upper * scale, found.exact, found.direction)


def iap_constant(x: ArrayLike) -> float:
    """diam/θ: the constant c of the c-isometric approximation property, HNM Theorem 2.4, over c_n.

    c_n depends on the dimension only and is not explicit in the literature, so ratios are all that
    can be computed. Infinite for flat sets, about which the theorem says nothing; where thickness
    is known as a bracket, its certified lower end is used.

    >>> round(iap_constant([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), 6)
    1.414214
    """
    lower = thickness(x).lower
    return diameter(x) / lower if lower > 0 else math.inf


def _thickness(x: Array, starts: int, iterations: int) -> Thickness:
    from scipy.spatial import ConvexHull, QhullError

    n = x.shape[1]
    axes = np.linalg.eigh(x.T @ x).eigenvectors.T  # the flattest first
    if np.linalg.matrix_rank(x) < n:
        return Thickness(0.0, 0.0, True, axes[0])
    if n == 1:
        extent = float(np.ptp(x))
        return Thickness(extent, extent, True, np.ones(1))
    if n <= max(_EXACT_VERTICES):
        try:
            x = x[ConvexHull(x).vertices]
        except QhullError:
            pass  # nearly flat: the bracket below copes
        else:
            if len(x) <= _EXACT_VERTICES[n]:
                return _exact_plane(x) if n == 2 else _exact(x)
    upper, direction = _from_above(x, axes, starts)
    return Thickness(min(_from_below(x, iterations), upper), upper, False, direction)


def _exact_plane(vertices: Array) -> Thickness:
    """In the plane the narrowest strip lies flush with an edge of the hull."""
    edges = np.roll(vertices, -1, axis=0) - vertices
    normals = np.stack([-edges[:, 1], edges[:, 0]], axis=1)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    widths = np.array([np.ptp(vertices @ normal) for normal in normals])
    k = int(widths.argmin())
    return Thickness(float(widths[k]), float(widths[k]), True, normals[k])


def _exact(vertices: Array) -> Thickness:
    """θ is the inradius of conv(A - A): its smallest facet offset."""
    from scipy.spatial import ConvexHull

    differences = (vertices[:, None] - vertices[None]).reshape(-1, vertices.shape[1])
    equations = ConvexHull(differences[np.abs(differences).max(axis=1) > 0]).equations
    direction = equations[np.argmax(equations[:, -1]), :-1]
    value = _width(vertices, direction)
    return Thickness(value, value, True, direction)


def _width(x: Array, direction: Array) -> float:
    return float(np.ptp(x @ direction) / np.linalg.norm(direction))


def _from_above(x: Array, axes: Array, starts: int) -> tuple[float, Array]:
    """Smallest width found by descents from the flattest principal axes and random directions."""
    rng = np.random.default_rng(0)
    directions = list(axes[: (starts + 1) // 2])
    while len(directions) < starts:
        directions.append(rng.normal(size=x.shape[1]))
    return min((_descend(x, d) for d in directions), key=lambda found: found[0])


def _descend(x: Array, direction: Array, rounds: int = 30) -> tuple[float, Array]:
    """Minimise the width over directions with e·e_k = 1, then renormalise: never increases."""
    direction = direction / np.linalg.norm(direction)
    width = _width(x, direction)
    active: set[int] = set()
    for _ in range(rounds):
        proposal = _narrowest(x, direction, active)
        narrower = _width(x, proposal)
        if narrower >= width * (1 - 1e-10):
            break
        width, direction = narrower, proposal / np.linalg.norm(proposal)
    return width, direction


def _narrowest(x: Array, direction: Array, active: set[int]) -> Array:
    """The linear programme min (max x·v - min x·v) with v·direction = 1, constraints as needed."""
    from scipy.optimize import linprog

    n = x.shape[1]
    order = np.argsort(x @ direction)
    active |= set(order[: n + 2].tolist()) | set(order[-n - 2 :].tolist())
    cost = np.r_[np.zeros(n), 1.0, -1.0]
    box = [(-1e6, 1e6)] * n + [(None, None)] * 2
    best = direction
    for _ in range(200):
        rows = x[sorted(active)]
        one, zero = np.ones((len(rows), 1)), np.zeros((len(rows), 1))
        inequalities = np.r_[np.c_[rows, -one, zero], np.c_[-rows, zero, one]]
        solved = linprog(
            cost,
            inequalities,
            np.zeros(len(inequalities)),
            A_eq=np.r_[direction, 0.0, 0.0][None],
            b_eq=[1.0],
            bounds=box,
            method="highs",
        )
        if solved.status != 0:
            break
        best = solved.x[:n]
        along = x @ best
        ends = {int(along.argmax()), int(along.argmin())}
        if np.ptp(along) <= solved.fun + 1e-9 * (1 + abs(solved.fun)) or ends <= active:
            break
        active |= ends
    return best


def _from_below(x: Array, iterations: int) -> float:
    """2·sqrt(λ_min) of the covariance under any weights is at most θ; mirror ascent on weights."""
    weights = np.full(len(x), 1.0 / len(x))
    best = 0.0
    for step in range(iterations):
        centred = x - weights @ x
        values, axes = np.linalg.eigh((centred * weights[:, None]).T @ centred)
        best = max(best, values[0])
        # A soft minimum over the eigenvectors gives the direction of ascent.
        soft = np.exp(-(values - values[0]) / (0.05 * abs(values[0]) + 1e-300))
        gain = (centred @ axes) ** 2 @ (soft / soft.sum())
        weights = weights * np.exp(3.0 / math.sqrt(1 + step) * gain / gain.max())
        weights /= weights.sum()
    # A range is at least twice the standard deviation; rounded down by what eigh may err.
    return 2.0 * math.sqrt(max(best * (1 - 1e-12), 0.0))
