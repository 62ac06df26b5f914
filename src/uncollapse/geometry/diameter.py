"""Diameter of a point set and distance between two: HNM (9b) and §3.3, EPS definition 1."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike, points
from uncollapse._base.check import InputError
from uncollapse._base.classes import ClassLayout
from uncollapse.distances import pairwise_distances
from uncollapse.geometry._screen import Screen, farthest_pair

__all__ = ["class_diameters", "diameter", "set_distance"]

_SMALL = 512  # below this many points one float64 product is the fastest way
_ROWS, _COLUMNS = 512, 2048  # a tile of distances: 4 MB
_SKETCH = 31  # leading principal axes of the cheap upper bound


def diameter(x: ArrayLike) -> float:
    """Largest distance between two of the points; 0.0 for a single point.

    Exact to float64 rounding at any spread and offset. Pairs that cannot win are never measured;
    memory stays at one float32 copy of the points and a few tiles, whatever their number.

    >>> diameter(torch.tensor([[0.0, 0.0], [3.0, 4.0], [1.0, 1.0]]))
    5.0
    """
    return _diameter(points(x).detach().cpu())


def class_diameters(x: ArrayLike, labels: ArrayLike) -> dict[object, float]:
    """Diameter of each class, by label in sorted order. Each class is measured about its own mean.

    >>> class_diameters([[0.0], [1.0], [5.0]], ["a", "a", "b"])
    {'a': 1.0, 'b': 0.0}
    """
    tensor = points(x).detach().cpu()
    layout = ClassLayout.of(labels, len(tensor))
    return {
        label: _diameter(tensor[torch.from_numpy(layout.members(c))])
        for c, label in enumerate(layout.classes.tolist())
    }


def set_distance(a: ArrayLike, b: ArrayLike) -> float:
    """Smallest distance between a point of `a` and a point of `b`: EPS definition 1.

    >>> set_distance([[0.0], [2.0]], [[5.0], [9.0]])
    3.0
    """
    first, second = points(a, "a").detach().cpu(), points(b, "b").detach().cpu()
    if first.shape[1] != second.shape[1]:
        raise InputError("b", f"{second.shape[1]} columns", f"{first.shape[1]} as in a")
    first, second = first.double(), second.double()
    step = max(1, _ROWS * _COLUMNS // len(second))
    return min(
        float(pairwise_distances(first[i : i + step], second).min())
        for i in range(0, len(first), step)
    )


def _diameter(x: Tensor) -> float:
    if len(x) <= _SMALL:
        centred = x.double() - x[0].double()
        centred -= centred.mean(0)
        largest = float(centred.abs().max())
        return 0.0 if largest == 0.0 else farthest_pair(*[centred / largest] * 2)[2] * largest
    screen = Screen.of(x)
    radius = screen.squares.sqrt()
    best = _farthest_point_sweeps(x, screen, radius)
    # |x - y| <= |x| + |y|: only points that could pair up with the outermost one can win.
    margin = 1.0 + 1e-5
    kept = ((radius + radius.max()) * margin > best).nonzero().flatten()
    kept = kept[torch.argsort(radius[kept], descending=True, stable=True)]
    return _scan(x, screen, kept, radius[kept], best) * screen.scale


def _farthest_point_sweeps(x: Tensor, screen: Screen, radius: Tensor, sweeps: int = 6) -> float:
    """A lower bound that is usually the answer: walk to the farthest point, from many starts."""
    best, seen = 0.0, torch.zeros(len(x), dtype=torch.bool)
    starts = torch.topk(radius, min(16, len(x))).indices
    for _ in range(sweeps):
        seen[starts] = True
        value = torch.full((len(starts),), -1.0)
        where = torch.zeros(len(starts), dtype=torch.long)
        for i in range(0, len(x), 1 << 16):
            part = slice(i, i + (1 << 16))
            square = torch.addmm(
                screen.squares[part, None], screen.points[part], screen.points[starts].T, alpha=-2.0
            )
            top, row = square.max(dim=0)
            better = top > value
            value, where = torch.where(better, top, value), torch.where(better, row + i, where)
        pairs = screen.exact(x, starts) - screen.exact(x, where)
        best = max(best, float(torch.linalg.vector_norm(pairs, dim=1).max()))
        starts = torch.from_numpy(np.unique(where.numpy()))
        starts = starts[~seen[starts]]
        if len(starts) == 0:
            break
    return best


def _scan(x: Tensor, screen: Screen, kept: Tensor, radius: Tensor, best: float) -> float:
    """Measure every tile that could still win, outermost points first."""
    candidates, squares = screen.points[kept], screen.squares[kept]
    transposed, reach = candidates.T, radius.tolist()
    sketch = _Sketch(candidates, squares) if len(kept) > 4 * _ROWS else None
    tile = torch.empty(_ROWS * _COLUMNS)
    for top in range(0, len(kept), _ROWS):
        if 2 * reach[top] * (1.0 + 1e-5) <= best:
            break
        rows = torch.arange(top, min(top + _ROWS, len(kept)))
        for left in range(top, len(kept), _COLUMNS):
            if (reach[top] + reach[left]) * (1.0 + 1e-5) <= best:
                break
            columns = slice(left, min(left + _COLUMNS, len(kept)))
            hot = rows
            if sketch is not None and sketch.worth_it:
                hot = sketch.survivors(rows, columns, best**2 - screen.slack, tile)
                if len(hot) == 0:
                    continue
            width = columns.stop - left
            square = tile[: len(hot) * width].view(len(hot), width)
            block = candidates[top : top + _ROWS] if len(hot) == len(rows) else candidates[hot]
            torch.addmm(squares[columns], block, transposed[:, columns], alpha=-2.0, out=square)
            peak = torch.from_numpy(square.numpy().max(axis=1)) + squares[hot]
            hot = hot[peak > best**2 - screen.slack]
            if len(hot) > 0:
                exact = screen.exact(x, kept[hot]), screen.exact(x, kept[columns])
                best = max(best, farthest_pair(*exact)[2])
    return best


class _Sketch:
    """Upper bounds of squared distances from the leading principal axes.

    With τ the length of a point outside those axes, |x - y|² <= |x_k - y_k|² + (τ_x + τ_y)²: a
    product of k + 1 columns instead of d. Of use when the spectrum decays.
    """

    def __init__(self, candidates: Tensor, squares: Tensor) -> None:
        sample = candidates[:: max(1, len(candidates) // 20_000)].double()
        axes = torch.linalg.eigh(sample.T @ sample).eigenvectors.flip(1)[:, :_SKETCH].float()
        leading = candidates @ axes
        rest = (squares - leading.square().sum(1)).clamp_(min=0.0).sqrt_()[:, None]
        self.left = torch.cat([leading, rest], dim=1)
        self.right = torch.cat([leading, -rest], dim=1).T.contiguous()
        self.squares = squares
        self.seen = self.passed = 0
        self.worth_it = candidates.shape[1] > 2 * (_SKETCH + 1)

    def survivors(self, rows: Tensor, columns: slice, threshold: float, tile: Tensor) -> Tensor:
        """Rows that may hold a pair above the threshold in these columns."""
        width = columns.stop - columns.start
        bound = tile[: len(rows) * width].view(len(rows), width)
        block = slice(int(rows[0]), int(rows[-1]) + 1)
        right = self.right[:, columns]
        torch.addmm(self.squares[columns], self.left[block], right, alpha=-2.0, out=bound)
        peak = torch.from_numpy(bound.numpy().max(axis=1)) + self.squares[block]
        hot = rows[peak > threshold]
        self.seen, self.passed = self.seen + len(rows), self.passed + len(hot)
        # It pays while it spares more than it costs; measured on the first tiles.
        self.worth_it = self.seen < 8 * _ROWS or self.passed < 0.3 * self.seen
        return hot
