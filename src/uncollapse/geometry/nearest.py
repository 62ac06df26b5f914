"""The nearest triplet-separated embedding of the same samples: HNM (13) and (15)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, ClassLayout, points64
from uncollapse._base.check import InputError, check_choice, check_int, check_number
from uncollapse._base.progress import ProgressOption, Report, progress_reporter
from uncollapse.distances import Frame, binary_scale, pairwise_distances
from uncollapse.geometry.isometry import hausdorff_like, isometric_error
from uncollapse.geometry.nearest_solvers import (
    Problem,
    certified_lower_bound,
    line_orders,
    shrunk,
    solve_convex_concave,
    solve_line,
)
from uncollapse.geometry.triplet_separation import separation

__all__ = ["NearestSeparated", "gradient_descent_separated", "nearest_separated"]


_LINE_ORDERS = 800  # linear programs of some 2 ms each
# Pairs times squared dimension. A step of the optimiser takes about 7 µs for each, a start some
# fifteen steps.
_CONE_SIZE = 200_000
_CONE_WORK = 100_000
_STARTS = 32


@dataclass(frozen=True, eq=False)
class NearestSeparated:
    """Separated points near given ones, how far they are, and how far any must be.

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
    progress: ProgressOption = False,
) -> NearestSeparated:
    """The α-triplet-separated points nearest to `x`, with a certified bracket of the distance.

    `objective="haus"` minimises the Hausdorff-like distance (12): the value of (13);
    `objective="iso"` the isometric error (14): the value of (15). On a line and with few classes
    the answer is exact. Otherwise it is the best of `starts` runs of the convex-concave procedure
    (chosen by size when None; 0 for none), or for large sets the classes shrunk until they
    separate. `method` says which. Deterministic for a seed. `progress` shows a bar (None: on a
    terminal only), or is called with (done, total). Beyond the line it needs the extra `geometry`
    (Clarabel, a cone solver).

    >>> found = nearest_separated([[0.0], [3.0], [-1.0]], [0, 0, 1])
    >>> round(found.value, 6), found.method
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
    space = _Space.of(raw, len(layout.counts), alpha)
    problem = Problem(space.x, layout, alpha / space.scale, objective, space.rounding)
    with progress_reporter(progress, "nearest separated points") as report:
        z, method, lower = _solve(problem, starts, rng, report)
    placed = _placed(problem, space, z, alpha)
    if objective == "iso":
        value = isometric_error(raw, placed)
    else:
        value = hausdorff_like(raw, placed, layout.ids)
    lower = min(lower * space.scale, value)
    return NearestSeparated(torch.from_numpy(placed), value, lower, method)


def _solve(
    problem: Problem, starts: int | None, rng: np.random.Generator, report: Report
) -> tuple[Array, str, float]:
    """Nearly separated points in unit scale, how they were found, and a lower bound."""
    n, dim = problem.x.shape
    if dim == 1 and line_orders(problem) <= _LINE_ORDERS:
        z, value = solve_line(problem, report)
        # A gap for each neighbouring pair of classes was asked to be `rounding` wider than it must.
        return z, "exact on the line", value - len(problem.layout.counts) * problem.rounding
    lower = certified_lower_bound(problem)
    candidates = [shrunk(problem, rng, report)]
    size = n * (n - 1) // 2 * dim**2
    if starts is None:
        starts = 0 if size > _CONE_SIZE else min(_STARTS, max(2, _CONE_WORK // size))
    if starts > 0:
        found = solve_convex_concave(problem, starts, lower, rng, report, candidates[:])
        if found is not None and (repaired := problem.repaired(found)) is not None:
            candidates.append(repaired)
    best = min(candidates, key=problem.value)
    return best, "shrink" if best is candidates[0] else "convex-concave", lower


def _placed(problem: Problem, space: _Space, z: Array, alpha: float) -> Array:
    """z in the coordinates of the input, separated there too, whatever they were rounded to."""
    for grow in (1.0, 1e2, 1e4, 1e6):
        cautious = replace(problem, rounding=problem.rounding * grow)
        repaired = z if grow == 1.0 else cautious.repaired(z)
        if repaired is not None:
            placed = space.out(repaired)
            if separation(placed, problem.layout.ids).margin >= alpha:
                return placed
    if alpha > 0.0:
        raise InputError("x", "points too close to tell apart", "a spread that float64 resolves")
    return space.out(problem.class_means(problem.x)[problem.layout.ids])


@dataclass(frozen=True, eq=False)
class _Space:
    """The points `x` centred, of unit scale, and of few dimensions; and the way back."""

    x: Array
    centre: Array
    scale: float
    basis: Array | None

    @classmethod
    def of(cls, raw: Array, classes: int, alpha: float) -> _Space:
        """N points span N - 1 dimensions; one more for each class is room enough to part them."""
        frame = Frame.of(torch.from_numpy(raw))
        unit, z = float(frame.unit), frame.wide.numpy()
        scale = binary_scale(max(float(frame.norms.amax().sqrt()) * unit, alpha))
        x, basis = z * (unit / scale), None
        if x.shape[1] > len(x) + classes:
            basis = np.linalg.svd(z, full_matrices=True)[2][: len(x) + classes].T
            x = x @ basis
        return cls(x, frame.centre.numpy() * unit, scale, basis)

    @property
    def rounding(self) -> float:
        """Margin to spare in these coordinates, so that none is missing in the input's."""
        coarse = 64.0 * np.finfo(np.float64).eps * float(np.abs(self.centre).max()) / self.scale
        return max(1e-10, coarse)

    def out(self, z: Array) -> Array:
        """To the input's coordinates."""
        placed: Array = self.centre + (z if self.basis is None else z @ self.basis.T) * self.scale
        return placed


# Gradient descent of the hard-mined triplet loss on the points themselves: HNM Fig. 4.


def gradient_descent_separated(
    x: ArrayLike, labels: ArrayLike, alpha: float = 0.0, *, steps: int = 50, lr: float = 0.05
) -> NearestSeparated:
    """Where plain gradient descent takes the points, as the paper does for its Fig. 4.

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
    loss = max(0.0, alpha - separation(raw, layout.ids).margin)
    z = torch.from_numpy(raw.copy()).requires_grad_()
    for _ in range(steps):
        distance = pairwise_distances(z)
        farthest = distance.masked_fill(~mates, 0.0).amax(dim=1)
        nearest = distance.masked_fill(mates, torch.inf).amin(dim=1)
        total = (farthest - nearest + alpha).clamp(min=0.0).sum()
        (gradient,) = torch.autograd.grad(total, z)
        z = (z - lr * gradient).detach().requires_grad_()
    end = z.detach()
    separated = separation(end, layout.ids).margin >= alpha
    value = hausdorff_like(raw, end, layout.ids)
    # L/4 <= d_haus for every α; a bound on the distance to separated points, not to this end point.
    lower = loss / 4.0
    return NearestSeparated(end, value, lower, "gradient descent", separated)
