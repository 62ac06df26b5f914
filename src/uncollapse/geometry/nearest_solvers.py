"""What each solver of HNM (13) and (15) is given: points in unit scale, and how to judge others."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, permutations, product
from types import ModuleType
from typing import Any

import numpy as np

from uncollapse._base.arrays import Array, ClassLayout
from uncollapse._base.extras import import_extra
from uncollapse._base.progress import Report
from uncollapse.distances import pairwise_distances
from uncollapse.geometry.isometry import hausdorff_like, isometric_error
from uncollapse.geometry.triplet_separation import separation

__all__ = [
    "ConeRows",
    "Problem",
    "certified_lower_bound",
    "cone_solver",
    "enclosing_ball",
    "line_orders",
    "quiet_settings",
    "shrunk",
    "solve_convex_concave",
    "solve_line",
]


# What each solver of HNM (13) and (15) is given: points in unit scale, and how to judge others.


@dataclass(frozen=True)
class Problem:
    """Points centred and of unit scale, their classes, the margin and the distance to minimise."""

    x: Array
    layout: ClassLayout
    alpha: float
    objective: str
    rounding: float  # margin to aim for above alpha, so that the answer is separated in float64

    @cached_property
    def loss(self) -> float:
        """The hard-mined loss L of the points as they are."""
        return max(0.0, self.alpha - self.margin(self.x))

    @cached_property
    def distances(self) -> Array:
        """All distances between the points as they are."""
        return pairwise_distances(self.x).numpy()

    def margin(self, z: Array) -> float:
        """The largest α for which z is α-triplet-separated."""
        return separation(z, self.layout.ids).margin

    def value(self, z: Array) -> float:
        """d_haus (12) or d_iso (14) between the points as they are and z."""
        if self.objective == "iso":
            return isometric_error(self.x, z)
        return hausdorff_like(self.x, z, self.layout.ids)

    def scaled(self, z: Array) -> Array | None:
        """z, scaled up if it must be, so that it is separated; None where scaling cannot do it.

        Scaling by s multiplies the margin by s.
        """
        margin = self.margin(z)
        goal = self.alpha + self.rounding
        if 0.0 < margin < goal and self.alpha > 0.0:
            middle = z.mean(axis=0)
            z = middle + (z - middle) * (goal / margin) * (1.0 + 1e-12)
            margin = self.margin(z)
        return z if margin >= self.alpha else None

    def repaired(self, z: Array) -> Array | None:
        """z moved a little so that it is separated with some rounding to spare, or None.

        Where the margin asked for is 0 the classes are shrunk about their means: if A and B are
        separated then every bisector of an a and a b has A on one side and B on the other, so that
        shrinking takes them farther from each other, relative to their size.
        """
        if self.alpha > 0.0 or self.margin(z) >= self.rounding:
            return self.scaled(z)
        means = self.class_means(z)[self.layout.ids]
        share = self.rounding
        while share < 0.1:
            tight = z + share * (means - z)
            if self.margin(tight) >= self.rounding:
                return tight
            share *= 4.0
        return None

    def class_means(self, z: Array) -> Array:
        """Mean of each class."""
        total = np.zeros((len(self.layout.counts), z.shape[1]))
        np.add.at(total, self.layout.ids, z)
        means: Array = total / self.layout.counts[:, None]
        return means


# HNM (13) and (15) exactly for points on a line: one small linear program per order of the points.


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


# Rows of a cone program over points: assembled as arrays, solved by Clarabel.


def cone_solver() -> ModuleType:
    """Clarabel, which nothing else needs: an extra."""
    return import_extra("clarabel", extra="geometry")


def quiet_settings() -> Any:
    """Its settings on one thread, without a log."""
    settings = cone_solver().DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    return settings


class ConeRows:
    """Constraints b - A v in K on unknowns v whose first n·dim entries are the points, row by row.

    Linear rows come first. A row that names a pair (i, j) also holds -u·(z_i - z_j), with the
    direction u of the pair given only when the program is solved.
    """

    def __init__(self, n: int, dim: int, width: int) -> None:
        self.n, self.dim, self.width = n, dim, width
        self.height = 0
        self.kinds: list[Any] = []
        self._entries: list[tuple[Array, Array, Array]] = []
        self._rhs: list[Array] = []
        self._directed: list[tuple[Array, Array]] = []  # row, pair
        self._linear = 0

    def linear(
        self, entries: list[tuple[Array, float]], rhs: Array, pairs: Array | None = None
    ) -> None:
        """Σ factor·v[column] (- u·(z_i - z_j)) <= rhs, one row for each entry of `rhs`."""
        rows = self.height + np.arange(len(rhs))
        for columns, factor in entries:
            self._entries.append((rows, columns, np.full(len(rows), factor)))
        if pairs is not None:
            self._directed.append((rows, pairs))
        self._extend(rhs)
        self._linear += len(rhs)

    def cones(
        self,
        head: Array,
        extra: Array,
        i: Array,
        j: Array | None = None,
        offset: Array | None = None,
    ) -> None:
        """‖z_i - z_j‖ <= v[head] + extra, or ‖z_i - offset_i‖ where there is no j."""
        count, dim = len(head), self.dim
        first = self.height + (dim + 1) * np.arange(count)
        tail = (first[:, None] + 1 + np.arange(dim)).ravel()
        self._entries.append((first, head, np.full(count, -1.0)))
        self._entries.append((tail, self._columns(i), np.full(count * dim, -1.0)))
        rhs = np.zeros((count, dim + 1))
        rhs[:, 0] = extra
        if j is not None:
            self._entries.append((tail, self._columns(j), np.full(count * dim, 1.0)))
        if offset is not None:
            rhs[:, 1:] = -offset
        self.kinds += [cone_solver().SecondOrderConeT(dim + 1)] * count
        self._extend(rhs.ravel())

    def solve(
        self, cost: Array, direction: Array, pairs: tuple[Array, Array], settings: Any
    ) -> Array | None:
        """argmin of cost·v, or None where the solver found none."""
        from scipy import sparse

        clarabel = cone_solver()
        entries = list(self._entries)
        for rows, pair in self._directed:
            where = np.repeat(rows, self.dim)
            u = direction[pair].ravel()
            entries.append((where, self._columns(pairs[0][pair]), -u))
            entries.append((where, self._columns(pairs[1][pair]), u))
        rows, columns, values = (np.concatenate(part) for part in zip(*entries, strict=True))
        matrix = sparse.csc_matrix((values, (rows, columns)), shape=(self.height, self.width))
        quadratic = sparse.csc_matrix((self.width, self.width))
        kinds = [clarabel.NonnegativeConeT(self._linear), *self.kinds]
        rhs = np.concatenate(self._rhs)
        answer = clarabel.DefaultSolver(quadratic, cost, matrix, rhs, kinds, settings).solve()
        v = np.array(answer.x)
        usable = str(answer.status) in ("Solved", "AlmostSolved") and bool(np.isfinite(v).all())
        return v if usable else None

    def _columns(self, points: Array) -> Array:
        columns: Array = (points[:, None] * self.dim + np.arange(self.dim)).ravel()
        return columns

    def _extend(self, rhs: Array) -> None:
        self._rhs.append(np.asarray(rhs, float))
        self.height += len(rhs)


# Certified lower bounds of HNM (13) and (15).

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


# HNM (13) and (15) by the convex-concave procedure, many starts, each step a cone program.

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


# Separated points at any size: classes shrunk towards the centres of their enclosing balls.

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
