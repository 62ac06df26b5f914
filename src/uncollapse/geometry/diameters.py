"""Diameter of a point set and of its classes: HNM (9b) and §3.3."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike, points
from uncollapse._base.classes import ClassLayout
from uncollapse.distances import Frame, binary_scale, screen_dtype, squared_norms
from uncollapse.distances.tiles import row_max, short_squares

__all__ = ["class_diameters", "diameter"]

_FEW = 1 << 16  # differences held at once, 0.5 MB: a class of a handful is measured by them
_SMALL = 512  # below this many points one float64 product is the fastest way
_ROWS, _COLUMNS = 512, 2048  # a tile of distances: 4 MB
_SWEEP = 1 << 16  # points measured at a time from the few that a sweep starts at
_SKETCH = 31  # leading principal axes of the cheap upper bound


def diameter(x: ArrayLike) -> float:
    """Largest distance between two of the points; 0.0 for a single point.

    Exact to float64 rounding at any spread and offset. Pairs that cannot win are never measured;
    memory stays at a few copies of the points and a few tiles, whatever their number.

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


def _diameter(x: Tensor) -> float:
    if len(x) ** 2 * x.shape[1] <= _FEW:
        wide = x.double()
        gaps = wide[:, None] - wide
        scale = binary_scale(float(gaps.abs().max()))
        return float(squared_norms(gaps.div_(scale)).max().sqrt()) * scale
    if len(x) <= _SMALL:
        frame = Frame.of(x, dtype=torch.float64)
        return _farthest(frame, frame) * float(frame.unit)
    frame = Frame.of(x, dtype=screen_dtype())
    if frame.collapsed:
        return 0.0
    best = _farthest_point_sweeps(frame)
    # |x - y| <= |x| + |y|: only points that could pair up with the outermost one can win.
    radius = frame.norms.sqrt()
    kept = ((radius + radius.max()) * (1.0 + frame.gamma) > best).nonzero().flatten()
    kept = kept[torch.argsort(radius[kept], descending=True, stable=True)]
    return _scan(frame.at(kept), best) * float(frame.unit)


def _farthest(a: Frame, b: Frame) -> float:
    """The largest distance from a row of `a` to a row of `b`, in float64 throughout."""
    square = short_squares(a.fine, slice(None), b.fine).add_(a.fine.norms[:, None])
    i, j = divmod(int(square.argmax()), len(b))
    return float(torch.linalg.vector_norm(a.wide[i] - b.wide[j]))


def _farthest_point_sweeps(frame: Frame, sweeps: int = 6) -> float:
    """A lower bound that is usually the answer: walk to the farthest point, from many starts."""
    best, seen = 0.0, torch.zeros(len(frame), dtype=torch.bool)
    starts = torch.topk(frame.norms, min(16, len(frame))).indices
    for _ in range(sweeps):
        seen[starts] = True
        value = torch.full((len(starts),), -torch.inf)
        where = torch.zeros(len(starts), dtype=torch.long)
        for left in range(0, len(frame), _SWEEP):
            square = short_squares(frame, starts, frame, slice(left, left + _SWEEP))
            top, column = square.max(dim=1)
            better = top > value
            value = torch.where(better, top, value)
            where = torch.where(better, column + left, where)
        best = max(best, float(frame.squares(starts, where).max().sqrt()))
        starts = torch.from_numpy(np.unique(where.numpy()))
        starts = starts[~seen[starts]]
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
    """Those of the rows of `x` whose largest squared distance to `y` is above the threshold."""
    width = columns.stop - columns.start
    block = slice(int(rows[0]), int(rows[-1]) + 1)
    some = block if block.stop - block.start == len(rows) else rows
    out = tile[: len(rows) * width].view(len(rows), width)
    peak = row_max(short_squares(x, some, y, columns, out)).flatten() + x.norms[some]
    return rows[peak > threshold]


class _Sketch:
    """Upper bounds of squared distances from the leading principal axes.

    With τ the length of a point outside those axes, |x - y|² <= |x_k - y_k|² + (τ_x + τ_y)²: a
    product of k + 1 columns instead of d, τ being a last coordinate of opposite signs. Of use when
    the spectrum decays.
    """

    def __init__(self, frame: Frame) -> None:
        rows = frame.block(slice(None))
        sample = rows[:: max(1, len(rows) // 20_000)].double()
        axes = torch.linalg.eigh(sample.T @ sample).eigenvectors.flip(1)[:, :_SKETCH]
        leading = rows @ axes.to(rows.dtype)
        rest = (frame.norms - leading.square().sum(1)).clamp_(min=0.0).sqrt_()[:, None]
        self.left = replace(frame, z=torch.cat([leading, rest], dim=1))
        self.right = replace(frame, z=torch.cat([leading, -rest], dim=1))
        self.seen = self.passed = 0
        self.worth_it = frame.dim > 2 * (_SKETCH + 1)

    def survivors(self, rows: Tensor, columns: slice, threshold: float, tile: Tensor) -> Tensor:
        """Rows that may hold a pair above the threshold in these columns."""
        hot = _above(self.left, rows, self.right, columns, threshold, tile)
        self.seen, self.passed = self.seen + len(rows), self.passed + len(hot)
        # It pays while it spares more than it costs; measured on the first tiles.
        self.worth_it = self.seen < 8 * _ROWS or self.passed < 0.3 * self.seen
        return hot
