"""Diameter and thickness of a point set, and the forecast of a diameter: HNM (9a), (9b), (17)."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, ClassLayout, points, points64
from uncollapse._base.check import check_number
from uncollapse.distances import Frame, binary_scale, screen_dtype, short_squares, squared_norms

_FEW = 1 << 16  # differences held at once, 0.5 MB: a class of a handful is measured by them
_SMALL = 512  # below this many points one float64 product is the fastest way
_ROWS, _COLUMNS = 512, 2048  # a tile of distances: 4 MB
_SWEEPS, _SWEEP = 6, 1 << 19  # how many, and values of points that one measures at a time
_COPIED = 1 << 24  # values of which a narrow copy is kept: 64 MB
_SKETCH = 31  # leading principal axes of the cheap upper bound


def diameter(x: ArrayLike) -> float:
    """Largest distance between two of the points; 0.0 for a single point.

    Exact to float64 rounding at any spread and offset. Pairs that cannot win are never measured;
    memory stays at a few copies of the points and a few tiles, whatever their number.

    >>> diameter(torch.tensor([[0.0, 0.0], [3.0, 4.0], [1.0, 1.0]]))
    5.0
    """
    return diameter_bracket(points(x))[0]


def diameter_bracket(x: Tensor, work: float = math.inf) -> tuple[float, float]:
    """The diameter, and the most it can be: the same, unless `work` did not suffice.

    At most `work` multiplications compare pairs, of the points farthest from the centre: of more
    pairs the largest distance seen is given, in practice within a few per cent. Points of any float
    dtype are converted a few at a time.

    >>> diameter_bracket(torch.tensor([[0.0, 0.0], [3.0, 4.0], [1.0, 1.0]]))
    (5.0, 5.0)
    """
    x = x.detach().cpu()
    if len(x) ** 2 * x.shape[1] <= _FEW:
        wide = x.double()
        gaps = wide[:, None] - wide
        scale = binary_scale(float(gaps.abs().max()))
        return (float(squared_norms(gaps.div_(scale)).max().sqrt()) * scale,) * 2
    if len(x) <= _SMALL:
        frame = Frame.of(x, dtype=torch.float64)
        return (_farthest(frame, frame) * float(frame.unit),) * 2
    frame = Frame.of(x, dtype=screen_dtype(), resident=x.numel() <= _COPIED)
    if frame.collapsed:
        return 0.0, 0.0
    best = _farthest_point_sweeps(frame)
    # |x - y| <= |x| + |y|: only points that could pair up with the outermost one can win.
    radius = frame.norms.sqrt()
    kept = ((radius + radius.max()) * (1.0 + frame.gamma) > best).nonzero().flatten()
    kept = kept[torch.argsort(radius[kept], descending=True, stable=True)]
    most = int(min(math.sqrt(2 * work / frame.dim), len(kept)))  # points with so many pairs
    bound = 0.0 if most == len(kept) else float(radius[kept[0]] + radius[kept[most]])
    best = _scan(frame.at(kept[:most]).kept(), best)
    unit = float(frame.unit)
    return best * unit, max(best, bound * (1.0 + frame.gamma)) * unit


def class_diameters(x: ArrayLike, labels: ArrayLike) -> dict[object, float]:
    """Diameter of each class, by label in sorted order. Each class is measured about its own mean.

    >>> class_diameters([[0.0], [1.0], [5.0]], ["a", "a", "b"])
    {'a': 1.0, 'b': 0.0}
    """
    tensor = points(x).detach().cpu()
    layout = ClassLayout.of(labels, len(tensor))
    return {
        label: diameter_bracket(tensor[torch.from_numpy(layout.members(c))])[0]
        for c, label in enumerate(layout.classes.tolist())
    }


def _farthest(a: Frame, b: Frame) -> float:
    """The largest distance from a row of `a` to a row of `b`, in float64 throughout."""
    square = short_squares(a.fine, slice(None), b.fine).add_(a.fine.norms[:, None])
    i, j = divmod(int(square.argmax()), len(b))
    return float(torch.linalg.vector_norm(a.wide[i] - b.wide[j]))


def _farthest_point_sweeps(frame: Frame) -> float:
    """A lower bound that is usually the answer: walk to the farthest point, from many starts."""
    best, seen = 0.0, torch.zeros(len(frame), dtype=torch.bool)
    starts, step = torch.topk(frame.norms, min(16, len(frame))).indices, max(1, _SWEEP // frame.dim)
    for _ in range(_SWEEPS):
        seen[starts] = True
        far, farthest = frame.norms.new_full((len(starts),), -math.inf), starts
        for left in range(0, len(frame), step):
            peak = short_squares(frame, starts, frame, slice(left, left + step)).max(dim=1)
            farther = peak.values > far
            far = torch.where(farther, peak.values, far)
            farthest = torch.where(farther, peak.indices + left, farthest)
        best = max(best, float(frame.squares(starts, farthest).max().sqrt()))
        starts = torch.unique(farthest[~seen[farthest]])
        if len(starts) == 0:
            break
    return best


def _scan(frame: Frame, best: float) -> float:
    """Measure every tile of these rows, outermost first, that could still beat `best`."""
    n, margin = len(frame), 1.0 + frame.gamma
    reach, slack = frame.norms.sqrt().tolist(), 2.0 * float(frame.band.max())
    sketch = _Sketch(frame) if n > 4 * _ROWS else None
    tile = frame.norms.new_empty(_ROWS * _COLUMNS)
    for top in range(0, n, _ROWS):
        if 2 * reach[top] * margin <= best:
            break
        rows = torch.arange(top, min(top + _ROWS, n))
        for left in range(top, n, _COLUMNS):
            if (reach[top] + reach[left]) * margin <= best:
                break
            columns, hot = slice(left, min(left + _COLUMNS, n)), rows
            if sketch is not None and sketch.worth_it:
                hot = sketch.survivors(rows, columns, best**2 - slack, tile)
                if len(hot) == 0:
                    continue
            hot = _above(frame, hot, frame, columns, best**2 - slack, tile)
            if len(hot) > 0:
                best = max(best, _farthest(frame.at(hot), frame.at(torch.arange(n)[columns])))
    return best


def _above(
    x: Frame, rows: Tensor, y: Frame, columns: slice, threshold: float, tile: Tensor
) -> Tensor:
    """Rows of `x` with a squared distance to some row of `y` above the threshold."""
    width = columns.stop - columns.start
    block = slice(int(rows[0]), int(rows[-1]) + 1)
    some = block if block.stop - block.start == len(rows) else rows
    out = tile[: len(rows) * width].view(len(rows), width)
    peak = short_squares(x, some, y, columns, out).amax(1) + x.norms[some]
    return rows[peak > threshold]


class _Sketch:
    """Upper bounds of squared distances from the leading principal axes.

    With τ the length of a point outside those axes, |x - y|² <= |x_k - y_k|² + (τ_x + τ_y)²: a
    product of k + 1 columns instead of d, τ being a last coordinate of opposite signs. Of use when
    the spectrum decays.
    """

    def __init__(self, frame: Frame) -> None:
        rows = frame.block(slice(None))
        sample = rows[:: -(-len(rows) // _ROWS)].double()  # few: the product is small at any width
        left = torch.linalg.eigh(sample @ sample.T).eigenvectors[:, -_SKETCH:]
        axes = torch.linalg.qr(sample.T @ left).Q
        leading = rows @ axes.to(rows.dtype)
        outside = (frame.norms - leading.square().sum(1)).clamp_(min=0.0).sqrt_()[:, None]
        self.left = replace(frame, z=torch.cat([leading, outside], dim=1))
        self.right = replace(frame, z=torch.cat([leading, -outside], dim=1))
        self.seen = self.passed = 0
        self.worth_it = frame.dim > 2 * (_SKETCH + 1)

    def survivors(self, rows: Tensor, columns: slice, threshold: float, tile: Tensor) -> Tensor:
        """Rows that may hold a pair above the threshold in these columns."""
        hot = _above(self.left, rows, self.right, columns, threshold, tile)
        self.seen, self.passed = self.seen + len(rows), self.passed + len(hot)
        # It pays while it saves more than it costs, measured on the first tiles.
        self.worth_it = self.seen < 8 * _ROWS or self.passed < 0.3 * self.seen
        return hot


# Most hull vertices for which the hull of all their differences is still quick, by dimension.
_EXACT_VERTICES = {2: 10_000, 3: 200, 4: 60, 5: 26, 6: 14}
_STARTS = 6  # of the descents from above


@dataclass(frozen=True)
class Thickness:
    """Bracket of the smallest width: lower <= θ <= upper, equal when `exact`.

    `direction` is a unit vector along which the set is `upper` wide.
    """

    lower: float
    upper: float
    exact: bool
    direction: Array


def thickness(x: ArrayLike) -> Thickness:
    """Smallest width of the set over all directions: HNM (9a).

    Exact when the set is flat (0, always so for N <= n points), in one dimension, and for few
    points in up to six dimensions. Otherwise a certified bracket: descents by linear programmes
    from above, reweighted covariance from below.

    >>> square = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    >>> thickness(square).upper
    1.0
    """
    from scipy.spatial import ConvexHull, QhullError

    array = points64(x)
    centred = array - array[0]
    centred -= centred.mean(axis=0)
    scale = float(np.abs(centred).max()) or 1.0
    z, n = centred / scale, array.shape[1]
    axes = np.linalg.eigh(z.T @ z).eigenvectors.T  # the flattest first
    if np.linalg.matrix_rank(z) < n:
        return Thickness(0.0, 0.0, True, axes[0])
    normals = np.ones((int(n == 1), n))
    if 1 < n <= max(_EXACT_VERTICES):
        with suppress(QhullError):  # nearly flat: the bracket below copes
            hull = ConvexHull(z)
            z = z[hull.vertices]
            if len(z) <= _EXACT_VERTICES[n]:
                if n > 2:  # of the facets of conv(A - A), whose inradius is θ
                    differences = (z[:, None] - z[None]).reshape(-1, n)
                    hull = ConvexHull(differences[np.abs(differences).max(axis=1) > 0])
                normals = hull.equations[:, :-1]
    if len(normals):  # the narrowest slab lies flush with a facet
        direction = min(normals, key=lambda normal: _width(z, normal))
        width = _width(z, direction) * scale
        return Thickness(width, width, True, direction)
    rng = np.random.default_rng(0)
    flattest = axes[: _STARTS // 2]
    first = [*flattest, *rng.normal(size=(_STARTS - len(flattest), n))]
    upper, direction = min((_descend(z, start) for start in first), key=lambda end: end[0])
    lower = min(_from_below(z), upper)
    return Thickness(lower * scale, upper * scale, False, direction)


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


def diameter_lower_bound(diameter_init: float, loss_init: float, c: float = 2.0) -> float:
    """diam(init) - c·L(init): the lower bound (17) of the diameter after training.

    It says nothing unless it is above 0. With the paper's c = 2 it is empirical, not a theorem:
    real training can end below it. Show it beside the outcome.

    >>> diameter_lower_bound(4.0, 0.5)
    3.0
    """
    start = check_number("diameter_init", diameter_init, 0.0)
    return start - check_number("c", c, 0.0) * check_number("loss_init", loss_init, 0.0)


def _width(x: Array, direction: Array) -> float:
    return float(np.ptp(x @ direction) / np.linalg.norm(direction))


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
    """The linear program min (max x·v - min x·v) with v·direction = 1, constraints as needed."""
    from scipy.optimize import linprog

    n = x.shape[1]
    order = np.argsort(x @ direction)
    active |= set(order[: n + 2].tolist()) | set(order[-n - 2 :].tolist())
    cost = np.r_[np.zeros(n), 1.0, -1.0]
    box = [(-1e6, 1e6)] * n + [(None, None)] * 2
    equality = np.r_[direction, 0.0, 0.0][None]
    best = direction
    for _ in range(200):
        rows = x[sorted(active)]
        one, zero = np.ones(len(rows)), np.zeros(len(rows))
        inequalities = np.r_[np.c_[rows, -one, zero], np.c_[-rows, zero, one]]
        solved = linprog(cost, inequalities, np.zeros(len(inequalities)), equality, [1.0], box)
        if solved.status != 0:
            break
        best = solved.x[:n]
        along = x @ best
        ends = {int(along.argmax()), int(along.argmin())}
        if np.ptp(along) <= solved.fun + 1e-9 * (1 + abs(solved.fun)) or ends <= active:
            break
        active |= ends
    return best


def _from_below(x: Array, iterations: int = 200) -> float:
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
