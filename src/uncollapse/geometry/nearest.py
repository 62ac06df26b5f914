"""The nearest triplet-separated embedding of the same samples: HNM (13) and (15)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, permutations, product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, ClassLayout, points64
from uncollapse._base.check import InputError, check_choice, check_int, check_number
from uncollapse._base.extras import import_extra
from uncollapse.distances import Frame, binary_scale, pairwise_distances
from uncollapse.geometry.isometry import hausdorff_like, isometric_error
from uncollapse.geometry.triplet_separation import hard_mined_loss, is_triplet_separated, separation

_LINE_ORDERS = 800  # linear programs of some 2 ms each
# Pairs times squared dimension. A step of the optimiser takes about 7 µs for each, a start some
# fifteen steps.
_CONE_SIZE = 200_000
_CONE_WORK = 100_000
_STARTS = 32


@dataclass(frozen=True, eq=False)
class NearestSeparated:
    """Separated points near given ones, their distance, and a lower bound for any others.

    `value` is measured on `points`, which are separated when `separated` says so; then the
    distance to the set of all separated embeddings lies in [lower_bound, value].
    """

    points: Tensor
    value: float
    lower_bound: float
    method: str
    separated: bool = True


def nearest_separated(
    x: ArrayLike,
    labels: ArrayLike,
    alpha: float = 0.0,
    objective: str = "haus",
    *,
    starts: int | None = None,
    seed: int = 0,
) -> NearestSeparated:
    """The α-triplet-separated points nearest to `x`, with a certified bracket of the distance.

    `objective="haus"` minimises the Hausdorff-like distance (12): the value of (13);
    `objective="iso"` the isometric error (14): the value of (15). On a line and with few classes
    the answer is exact. Otherwise it is the best of `starts` runs of the convex-concave procedure
    (chosen by size when None; 0 for none), or for large sets the classes shrunk until they
    separate. `method` says which. Deterministic for a seed. Beyond the line it needs the extra
    `geometry` (Clarabel, a cone solver).

    >>> nearest = nearest_separated([[0.0], [3.0], [-1.0]], [0, 0, 1])
    >>> round(nearest.value, 6), nearest.method
    (0.5, 'exact on the line')
    """
    raw = points64(x, min_rows=2)
    layout = ClassLayout.of(labels, len(raw), min_classes=2)
    alpha = check_number("alpha", alpha, 0.0)
    check_choice("objective", objective, ("haus", "iso"))
    if starts is not None:
        check_int("starts", starts, 0)
    rng = np.random.default_rng(check_int("seed", seed, 0))
    if separation(raw, layout.ids).margin >= alpha:
        return NearestSeparated(torch.from_numpy(raw.copy()), 0.0, 0.0, "already separated")
    # Centred, of unit scale, and of few dimensions: N points span N - 1 of them, and one more for
    # each class is room enough to part them.
    frame = Frame.of(torch.from_numpy(raw))
    unit, z = float(frame.unit), frame.wide.numpy()
    scale = binary_scale(max(float(frame.norms.amax().sqrt()) * unit, alpha))
    room = min(z.shape[1], len(z) + len(layout.counts))
    basis = np.eye(room) if room == z.shape[1] else np.linalg.svd(z)[2][:room].T
    centre = frame.centre.numpy() * unit
    # Margin to spare in these coordinates, so that none is missing in the input's.
    rounding = max(1e-10, 64.0 * np.finfo(np.float64).eps * float(np.abs(centre).max()) / scale)
    coordinates = z * (unit / scale) @ basis
    problem = _Problem(coordinates, layout, alpha / scale, objective, rounding, rng)
    z, method, lower = _solve(problem, starts)
    for placed in (centre + near @ basis.T * scale for near in _repairs(problem, z)):
        if separation(placed, layout.ids).margin >= alpha:
            value = replace(problem, x=raw).value(placed)
            lower = min(lower * scale, value)
            return NearestSeparated(torch.from_numpy(placed), value, lower, method)
    raise InputError("x", "points too close to tell apart", "a spread that float64 resolves")


def gradient_descent_separated(
    x: ArrayLike, labels: ArrayLike, alpha: float = 0.0, *, steps: int = 50, lr: float = 0.05
) -> NearestSeparated:
    """Move the points by plain gradient descent, as the paper does for its Fig. 4.

    Each step descends the triplet loss (4) of every anchor's hardest triplet, summed over the
    anchors; all of them stop moving once separated. `value` is the Hausdorff-like distance (12) to
    the end point. It bounds (13) from above only if the end point is separated, which `separated`
    says; `nearest_separated` comes nearer, and without shrinking everything.

    >>> end = gradient_descent_separated([[0.0], [1.0], [1.2]], [0, 0, 1], steps=20)
    >>> end.separated, end.method
    (True, 'gradient descent')
    """
    raw = points64(x, min_rows=2)
    layout = ClassLayout.of(labels, len(raw), min_classes=2)
    alpha = check_number("alpha", alpha, 0.0)
    steps, lr = check_int("steps", steps, 0), check_number("lr", lr, 0.0)
    ids = torch.from_numpy(layout.ids)
    mates = ids[:, None] == ids
    # L/4 <= d_haus for every α; a bound on the distance to separated points, not to the end point.
    lower = hard_mined_loss(raw, layout.ids, alpha) / 4.0
    z = torch.from_numpy(raw.copy()).requires_grad_()
    for _ in range(steps):
        distance = pairwise_distances(z)
        farthest = distance.masked_fill(~mates, 0.0).amax(dim=1)
        nearest = distance.masked_fill(mates, torch.inf).amin(dim=1)
        total = (farthest - nearest + alpha).clamp(min=0.0).sum()
        (gradient,) = torch.autograd.grad(total, z)
        z = (z - lr * gradient).detach().requires_grad_()
    end = z.detach()
    separated = is_triplet_separated(end, layout.ids, alpha)
    value = hausdorff_like(raw, end, layout.ids)
    return NearestSeparated(end, value, lower, "gradient descent", separated)


@dataclass(frozen=True)
class _Problem:
    """Points centred and of unit scale, their classes, the margin and the distance to minimise."""

    x: Array
    layout: ClassLayout
    alpha: float
    objective: str
    rounding: float  # margin to aim for above alpha, so that the answer is separated in float64
    rng: np.random.Generator

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
        """z, scaled up if necessary to be separated; None if no scale separates it.

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
        total = np.add.reduceat(z[self.layout.order], self.layout.starts)
        return np.asarray(total / self.layout.counts[:, None])


def _solve(problem: _Problem, starts: int | None) -> tuple[Array, str, float]:
    """Nearly separated points in unit scale, how they were found, and a lower bound."""
    n, dim = problem.x.shape
    # A linear program for each order on the line; one and its mirror image are the same to an
    # isometric error.
    sizes = problem.layout.counts.tolist()
    orders = math.factorial(len(sizes))
    if problem.objective == "iso":
        orders = orders * math.prod(map(math.factorial, sizes)) // 2
    if dim == 1 and orders <= _LINE_ORDERS:
        programs = _isometric if problem.objective == "iso" else _displaced
        value, z = min(programs(problem), key=lambda answer: answer[0])
        # A gap for each neighbouring pair of classes was asked to be `rounding` wider than it must.
        return z, "exact on the line", value - len(sizes) * problem.rounding
    lower = _certified_lower_bound(problem)
    shrunk = _shrunk(problem)
    size = n * (n - 1) // 2 * dim**2
    if starts is None:
        starts = 0 if size > _CONE_SIZE else min(_STARTS, max(2, _CONE_WORK // size))
    if starts > 0:
        separated = _convex_concave(problem, starts, lower, shrunk)
        if separated is not None and problem.value(separated) < problem.value(shrunk):
            return separated, "convex-concave", lower
    return shrunk, "shrink", lower


def _repairs(problem: _Problem, z: Array) -> Iterator[Array]:
    """z, then z with ever more margin to spare for what the input's coordinates are rounded to."""
    yield z
    for grow in (1e2, 1e4, 1e6):
        repaired = replace(problem, rounding=problem.rounding * grow).repaired(z)
        if repaired is not None:
            yield repaired
    if problem.alpha == 0.0:
        yield problem.class_means(problem.x)[problem.layout.ids]


def _displaced(problem: _Problem) -> Iterator[tuple[float, Array]]:
    """Smallest largest move, for each order of the classes.

    Inside a class the order may be kept (swapping two targets never helps), and the best target of
    a point is the nearest one of its class's interval [low, high].
    """
    x, layout = problem.x[:, 0], problem.layout
    classes = len(layout.counts)
    first = np.minimum.reduceat(x[layout.order], layout.starts)
    last = np.maximum.reduceat(x[layout.order], layout.starts)
    identity = np.eye(2 * classes + 1)
    low, high, move = identity[:classes], identity[classes:-1], identity[-1]
    # low <= first + move, high >= last - move, low <= high.
    fixed = [low - move, -high - move, low - high]
    fixed_rhs = np.concatenate([first, -last, np.zeros(classes)])
    for order in map(list, permutations(range(classes))):
        rows = _gap_rows(low[order], high[order])
        rhs = np.concatenate([fixed_rhs, np.full(len(rows), -problem.alpha - problem.rounding)])
        v = _minimise(move, np.vstack([*fixed, rows]), rhs)
        ends = v[:classes][layout.ids], v[classes:-1][layout.ids]
        yield float(v[-1]), np.clip(x, *ends)[:, None]


def _isometric(problem: _Problem) -> Iterator[tuple[float, Array]]:
    """Smallest largest change of a distance, for each order of the points that keeps classes whole.

    With the order fixed every distance is a difference of two places.
    """
    n = len(problem.x)
    members = [problem.layout.members(c).tolist() for c in range(len(problem.layout.counts))]
    left, right = np.triu_indices(n, 1)
    identity = np.eye(n + 1)
    change = identity[-1]
    for classes in map(list, permutations(range(len(members)))):
        sizes = problem.layout.counts[classes]
        stops = np.cumsum(sizes)
        for parts in product(*(permutations(members[c]) for c in classes)):
            order = np.concatenate(parts)
            if order[0] > order[-1]:
                continue
            places = identity[order]
            spans = places[right] - places[left]
            target = problem.distances[order[left], order[right]]
            gaps = _gap_rows(places[stops - sizes], places[stops - 1])
            rows = np.vstack([spans - change, -spans - change, places[:-1] - places[1:], gaps])
            margins = np.full(len(gaps), -problem.alpha - problem.rounding)
            v = _minimise(change, rows, np.concatenate([target, -target, np.zeros(n - 1), margins]))
            yield float(v[-1]), v[:-1, None]


def _gap_rows(first: Array, last: Array) -> Array:
    """Length of a class minus the gap to its neighbour, from first and last points in order."""
    length, gap = last - first, first[1:] - last[:-1]
    return np.vstack([length[:-1] - gap, length[1:] - gap])


def _minimise(cost: Array, rows: Array, rhs: Array) -> Array:
    """argmin of cost·v subject to rows·v <= rhs; every program here is feasible and bounded."""
    from scipy.optimize import linprog

    bounds = [(None, None)] * (len(cost) - 1) + [(0.0, None)]
    answer = linprog(cost, rows, rhs, bounds=bounds, method="highs")
    if answer.status != 0:
        raise RuntimeError(f"the linear program of one order failed: {answer.message}")
    return np.asarray(answer.x)


_GRAM_SIZE = 42  # points plus dimensions: the program then takes up to two seconds
_TOLERANCE = 1e-7  # taken off a semidefinite program's dual value, far above its residuals


def _certified_lower_bound(problem: _Problem) -> float:
    """A lower bound of the distance to any separated points.

    For every α, L/2 <= d_iso and d_iso/2 <= d_haus. Small sets get a semidefinite bound too.
    """
    loss = hard_mined_loss(problem.x, problem.layout.ids, problem.alpha)
    if problem.objective == "iso":
        return loss / 2.0
    simple = loss / 4.0
    return max(simple, _gram_bound(problem)) if sum(problem.x.shape) <= _GRAM_SIZE else simple


def _gram_bound(problem: _Problem) -> float:
    """Smallest largest move when the points may use any number of dimensions.

    With G the Gram matrix of the points z, squared distances are linear in G, separation implies
    d²(a, p) <= t_a and t_a + α² <= d²(a, n), and G ⪰ z zᵀ is all that is kept of G = z zᵀ.
    Unknowns: the upper triangle of [[I, zᵀ], [z, G]] by columns, the t, and the squared move.
    """
    from scipy import sparse

    x, ids = problem.x, problem.layout.ids
    n, dim = x.shape
    triangle = (dim + n) * (dim + n + 1) // 2
    unknown = sparse.identity(triangle + n + 1, format="csr")  # a row for each

    def entry(i: Array, j: Array) -> Any:
        high = np.maximum(i, j)
        return unknown[high * (high + 1) // 2 + np.minimum(i, j)]

    point, move = dim + np.arange(n), np.full(n, triangle + n)
    a, b = np.divmod(np.arange(n * n), n)  # the anchor is a positive of its own: t_a >= 0
    mates = ids[a] == ids[b]
    squares = entry(point[a], point[a]) + entry(point[b], point[b]) - 2 * entry(point[a], point[b])
    separated = sparse.diags(np.where(mates, 1.0, -1.0)) @ (squares - unknown[triangle + a])
    products = _row_products(x) @ entry(np.tile(np.arange(dim), n), np.repeat(point, dim))
    moved = entry(point, point) - 2 * products - unknown[move]
    # The corner is the identity; then the whole triangle is positive semidefinite.
    i, j = np.triu_indices(dim)
    scale = np.full(triangle, math.sqrt(2.0))
    scale[np.cumsum(np.arange(1, dim + n + 1)) - 1] = 1.0  # the diagonal
    whole = sparse.diags(-scale) @ unknown[:triangle]
    margins = np.where(mates, 0.0, -(problem.alpha**2))
    answer = _cone_program(
        unknown[move[0]].toarray()[0],
        sparse.vstack([separated, moved, entry(i, j), whole]),
        np.concatenate([margins, -np.square(x).sum(axis=1), i == j, np.zeros(triangle)]),
        [("Nonnegative", n * n + n), ("Zero", len(i)), ("PSDTriangle", dim + n)],
    )
    if str(answer.status) != "Solved":
        return 0.0
    return math.sqrt(max(0.0, float(answer.obj_val_dual) - _TOLERANCE))


def _row_products(vectors: Array) -> Any:
    """The sparse matrix that takes rows z_k, one below the other, to vectors_k·z_k."""
    from scipy import sparse

    count, dim = vectors.shape
    ends = np.arange(0, count * dim + 1, dim)
    return sparse.csr_matrix((vectors.ravel(), np.arange(count * dim), ends))


def _cone_program(cost: Array, rows: Any, rhs: Array, cones: Sequence[tuple[str, int]]) -> Any:
    """Clarabel's answer: argmin of cost·v with rhs - rows·v in the product of the cones."""
    from scipy import sparse

    clarabel = import_extra("clarabel", extra="geometry")
    settings = clarabel.DefaultSettings()
    settings.verbose, settings.max_threads = False, 1
    kinds = [getattr(clarabel, f"{name}ConeT")(size) for name, size in cones]
    quadratic = sparse.csc_matrix((len(cost), len(cost)))
    matrix = sparse.csc_matrix(rows)
    return clarabel.DefaultSolver(quadratic, cost, matrix, rhs, kinds, settings).solve()


_SPARE = 2e-9  # margin asked for beyond alpha: what the cone solver's tolerance may lose
_WEIGHTS = (2.0, 10.0, 50.0)  # of the slack, step by step: a bad start need not give up its shape
_CLOSE = 1e-3  # a start this near to the lower bound ends the search for others


def _convex_concave(problem: _Problem, starts: int, bound: float, warm: Array) -> Array | None:
    """The best separated points over the starts, or None; stops early at the lower bound.

    Each step of the convex-concave procedure is a cone program.
    """
    step = _Step(problem)
    runs: list[tuple[float, Array]] = []
    for start in islice(_starts(problem, warm), starts):
        runs.append(_descend(step, start, bound, 10, 1e-3))
        if runs[-1][0] <= bound * (1.0 + _CLOSE):
            break
    runs.sort(key=lambda run: run[0])
    # Only the most promising runs are followed to the end.
    runs += [_descend(step, z, bound, 60, 1e-6) for _, z in runs[: 3 if starts >= 8 else 1]]
    value, z = min(runs, key=lambda run: run[0])
    return problem.repaired(z) if value < math.inf else None


def _descend(
    step: _Step, start: Array, bound: float, steps: int, tolerance: float
) -> tuple[float, Array]:
    """Value and points after steps, until they gain less than the tolerance.

    The value is infinite if the points are not separated.
    """
    z, before, reached = start, math.inf, math.inf
    for k in range(steps):
        weight = _WEIGHTS[min(k, len(_WEIGHTS) - 1)]
        answer = step(z, weight)
        if answer is None:
            break
        z, value, slack = answer
        reached = value if slack <= 1e-6 else math.inf
        if reached <= bound * (1.0 + 1e-8):
            break
        if weight == _WEIGHTS[-1]:
            total = value + weight * slack
            if before - total <= tolerance * total:
                break
            before = total
    return reached, z


def _starts(problem: _Problem, warm: Array) -> Iterator[Array]:
    """Classes shrunk about their jittered means; generic starts get stuck much higher.

    Distances, unlike places, often need to change so little that the points themselves do.
    """
    x, rng = problem.x, problem.rng
    if problem.objective == "iso":
        yield x + 1e-3 * rng.standard_normal(x.shape)
    yield warm
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

    def __init__(self, problem: _Problem) -> None:
        from scipy import sparse

        n, dim = problem.x.shape
        self.rng = problem.rng
        i, j = self.ends = np.triu_indices(n, 1)
        mates = problem.layout.ids[i] == problem.layout.ids[j]
        within, across = np.flatnonzero(mates), np.flatnonzero(~mates)
        unknown = sparse.identity(n * dim + n + len(within) + 2, format="csr")  # a row for each
        points, others = unknown[: n * dim], unknown[n * dim :]
        radius, length = others[:n], others[n:-2]
        coordinates = np.arange(n * dim).reshape(n, dim)
        self.apart = points[coordinates[i].ravel()] - points[coordinates[j].ravel()]
        # radius + alpha <= u·(z_i - z_j) + slack; the directions u are given to each step
        slack = unknown[np.full(len(across), -1)]
        directed = [radius[i[across]] - slack, radius[j[across]] - slack]
        goal = problem.alpha + _SPARE + problem.rounding
        pairs, bounds = [across, across], [np.full(2 * len(across), -goal)]
        if problem.objective == "iso":
            # distance - value <= u·(z_i - z_j) and ‖z_i - z_j‖ <= distance + value
            distance = problem.distances[i, j]
            directed.append(-unknown[np.full(len(i), -2)])
            pairs.append(np.arange(len(i)))
            bounds.append(-distance)
            moved, origin, extra = self.apart, np.zeros((len(i), dim)), distance
        else:
            # ‖z_i - x_i‖ <= value
            moved, origin, extra = points, problem.x, np.zeros(n)
        # length of a pair <= radius of either end
        plain = [length - radius[i[within]], length - radius[j[within]], -radius, -unknown[-2:]]
        # ‖z_i - z_j‖ <= length of the pair
        inside = self.apart[np.arange(len(i) * dim).reshape(-1, dim)[within].ravel()]
        value = unknown[np.full(len(extra), -2)]
        cones = [_second_order(length, inside, dim), _second_order(value, moved, dim)]
        self.pairs = np.concatenate(pairs)
        self.rows = sparse.vstack([*directed, *plain, *cones], format="csr")
        moves = np.c_[extra, -origin].ravel()
        zeros = np.zeros(self.rows.shape[0] - len(self.pairs) - len(moves))
        self.rhs = np.concatenate([*bounds, zeros, moves])
        second_order = [("SecondOrder", dim + 1)] * (len(within) + len(extra))
        linear = self.rows.shape[0] - (dim + 1) * len(second_order)
        self.cones = [("Nonnegative", linear), *second_order]

    def __call__(self, z: Array, weight: float) -> tuple[Array, float, float] | None:
        """The best points for the directions of z, their value, and the slack they need."""
        i, j = self.ends
        direction = z[i] - z[j]
        lost = np.linalg.norm(direction, axis=1) < 1e-9
        direction[lost] = self.rng.standard_normal((int(lost.sum()), z.shape[1]))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        products = (_row_products(direction) @ self.apart)[self.pairs]
        products.resize(self.rows.shape)
        cost = np.zeros(self.rows.shape[1])
        cost[-2:] = 1.0, weight
        answer = _cone_program(cost, self.rows - products, self.rhs, self.cones)
        v = np.array(answer.x)
        if str(answer.status) not in ("Solved", "AlmostSolved") or not np.isfinite(v).all():
            return None
        return v[: z.size].reshape(z.shape), float(v[-2]), float(v[-1])


def _second_order(heads: Any, tails: Any, dim: int) -> Any:
    """Rows of second-order cones: minus a head, then minus the `dim` rows whose norm it bounds."""
    from scipy import sparse

    count = heads.shape[0]
    order = np.c_[np.arange(count), count + np.arange(count * dim).reshape(count, dim)]
    return -sparse.vstack([heads, tails], format="csr")[order.ravel()]


_GRID = 10  # shares of the largest radius tried first
_SECTIONS = 6  # then the best one's neighbourhood is cut by a third this many times


def _shrunk(problem: _Problem) -> Array:
    """Classes shrunk towards the centres of their enclosing balls until they are separated.

    Without an optimiser, in some twenty passes over the distances, so at any size.
    """
    x, ids = problem.x, problem.layout.ids
    classes = range(len(problem.layout.counts))
    balls = [_enclosing_ball(x[problem.layout.members(c)]) for c in classes]
    centres, radii = (np.array(part) for part in zip(*balls, strict=True))
    attempts: dict[float, tuple[float, Array]] = {}

    def attempt(share: float) -> float:
        """Value after moving every class by at most `share` of the largest radius; inf if none."""
        if share not in attempts:
            reach = np.minimum(1.0, share * radii.max() / np.maximum(radii, 1e-300))[ids][:, None]
            # Written so that a share of 1 puts the members of a class on exactly one point.
            z = problem.scaled((1.0 - reach) * x + reach * centres[ids])
            attempts[share] = (math.inf, x) if z is None else (problem.value(z), z)
        return attempts[share][0]

    best = min(np.linspace(0.0, 1.0, _GRID + 1).tolist(), key=attempt)
    low, high = max(best - 1.0 / _GRID, 0.0), min(best + 1.0 / _GRID, 1.0)
    for _ in range(_SECTIONS):
        left, right = low + (high - low) / 3.0, high - (high - low) / 3.0
        if attempt(left) <= attempt(right) < math.inf:
            high = right
        else:
            low = left
    candidates = [*attempts.values()]
    if problem.alpha > 0.0:
        candidates += [(problem.value(z[ids]), z[ids]) for z in _spread(problem, centres)]
    return min(candidates, key=lambda candidate: candidate[0])[1]


def _enclosing_ball(points: Array, iterations: int = 300) -> tuple[Array, float]:
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


def _spread(problem: _Problem, centres: Array) -> Iterator[Array]:
    """Centres of classes pushed at least the margin apart, in two ways."""
    goal = (problem.alpha + problem.rounding) * (1.0 + 1e-9)
    yield _pushed_along_a_line(centres, goal)
    direction = problem.rng.standard_normal(centres.shape)
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
        yield apart


def _pushed_along_a_line(centres: Array, goal: float) -> Array:
    """Moved along the main axis, as little as makes neighbours there `goal` apart."""
    middle = centres - centres.mean(axis=0)
    axis = np.linalg.svd(middle, full_matrices=False)[2][0]
    along = middle @ axis
    order = np.argsort(along, kind="stable")
    steps = goal * np.arange(len(order))
    # Coordinates minus steps must not decrease; halfway between the two running extremes is the
    # nearest such sequence in the largest-move sense.
    free = along[order] - steps
    up = np.maximum.accumulate(free)
    down = np.minimum.accumulate(free[::-1])[::-1]
    target = np.empty_like(along)
    target[order] = 0.5 * (up + down) + steps
    return np.asarray(centres + (target - along)[:, None] * axis)
