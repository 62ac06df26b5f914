"""Triplet separation and the hard-mined loss: HNM definition 2.1, (4) and (5)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, ClassLayout, points
from uncollapse._base.check import check_number
from uncollapse.distances import Frame, pairwise_distances, row_argmin, screen_dtype, short_squares

_TILE = 1024
_FEW = 32  # members of a class up to which distances are taken by differences, not in a frame
_ROUNDING = 1e-12  # relative, of a squared distance by differences in float64
_EXACT_ROWS = 1 << 21  # float64 distances held at a time while deciding between candidates


@dataclass(frozen=True)
class Separation:
    """The largest α for which a labelled set is α-triplet-separated, and the triplet that caps it.

    `positive` is the anchor itself where the anchor's class has one member.
    """

    margin: float
    anchor: int
    positive: int
    negative: int


def separation(x: ArrayLike, labels: ArrayLike) -> Separation:
    """Smallest (nearest negative - farthest positive) over all anchors; negative when they mix.

    Exact to float64 rounding. Definition 2.1 lets the positive be the anchor itself, so members of
    singleton classes are anchors too, with farthest positive 0. The lowest rows win a tie.

    >>> separation([[0.0], [1.0], [3.0]], [0, 0, 1])
    Separation(margin=1.0, anchor=1, positive=0, negative=2)
    """
    tensor = points(x, min_rows=2).detach().cpu()
    layout = ClassLayout.of(labels, len(tensor), min_classes=2)
    anchors = _candidates(tensor, layout) if len(tensor) > _TILE else np.arange(len(tensor))
    return _decide(tensor, layout, anchors)


def is_triplet_separated(x: ArrayLike, labels: ArrayLike, alpha: float = 0.0) -> bool:
    """Whether the classes are α-triplet-separated: HNM (5).

    >>> is_triplet_separated([[0.0], [1.0], [3.0]], [0, 0, 1], alpha=1.0)
    True
    """
    return separation(x, labels).margin >= check_number("alpha", alpha, 0.0)


def hard_mined_loss(x: ArrayLike, labels: ArrayLike, alpha: float = 0.0) -> float:
    """The triplet loss (4) of the hardest triplet: L_α = max(0, α - separation).

    A supremum over all triplets, as in HNM Theorem 3.3; not the mean over anchors that training
    with batch-hard mining minimises.

    >>> hard_mined_loss([[0.0], [1.0], [3.0]], [0, 0, 1], alpha=1.5)
    0.5
    """
    return max(0.0, check_number("alpha", alpha, 0.0) - separation(x, labels).margin)


def _decide(x: Tensor, layout: ClassLayout, anchors: Array) -> Separation:
    """The exact margin among these anchors (ascending), by float64 distances."""
    wide, ids = x.double(), torch.from_numpy(layout.ids)
    best = Separation(np.inf, -1, -1, -1)
    step = max(1, _EXACT_ROWS // len(x))
    for i in range(0, len(anchors), step):
        rows = torch.from_numpy(anchors[i : i + step])
        each = torch.arange(len(rows))
        distance = pairwise_distances(wide[rows], wide)
        same = ids[rows][:, None] == ids
        # The anchor's distance to itself is the float 0 it should be, not a rounding of it.
        distance[each, rows] = 0.0
        positive = row_argmin(-distance.masked_fill(~same, -1.0))
        negative = row_argmin(distance.masked_fill(same, torch.inf))
        margin = distance[each, negative] - distance[each, positive]
        a = int(margin.numpy().argmin())  # torch promises no order among equals
        if margin[a] < best.margin:
            best = Separation(float(margin[a]), int(rows[a]), int(positive[a]), int(negative[a]))
    return best


def _candidates(x: Tensor, layout: ClassLayout) -> Array:
    """Anchors whose margin, known from products with a proven bound, may be the smallest."""
    frame = Frame.of(x[torch.from_numpy(layout.order)], dtype=screen_dtype())
    near = _nearest_negative_squares(frame, layout)
    near_slack = frame.band.double().numpy() + float(frame.band.max())
    far, far_slack = _farthest_positive_squares(frame, layout)
    low = np.sqrt(np.maximum(near - near_slack, 0)) - np.sqrt(far + far_slack)
    high = np.sqrt(near + near_slack) - np.sqrt(np.maximum(far - far_slack, 0))
    return np.sort(layout.order[low <= high.min()])


def _nearest_negative_squares(frame: Frame, layout: ClassLayout) -> Array:
    """Squared distance of each row (in class order) to another class, by symmetric tiles."""
    n, ids = len(layout.ids), layout.ids[layout.order]
    stops = (layout.starts + layout.counts)[ids]
    nearest = np.full(n, np.inf)
    tile = frame.norms.new_empty(_TILE * _TILE)
    for top in range(0, n, _TILE):
        rows = slice(top, min(top + _TILE, n))
        height = rows.stop - top
        for left in range(top, n, _TILE):
            columns = slice(left, min(left + _TILE, n))
            out = tile[: height * (columns.stop - left)].view(height, -1)
            square = short_squares(frame, rows, frame, columns, out).add_(frame.norms[rows, None])
            view = square.numpy()
            if stops[rows.stop - 1] > left:  # rows are class by class: it touches a class block
                view[ids[rows, None] == ids[columns]] = np.inf
            np.minimum(nearest[rows], view.min(axis=1), out=nearest[rows])
            if left > top:
                np.minimum(nearest[columns], view.min(axis=0), out=nearest[columns])
    return nearest.clip(min=0)


def _farthest_positive_squares(frame: Frame, layout: ClassLayout) -> tuple[Array, Array]:
    """Squared distance of each row (in class order) to its farthest classmate, and its error bound.

    Each larger class has a frame of its own, so that tight classes far apart stay exact.
    """
    far, slack = np.zeros(len(frame)), np.zeros(len(frame))
    few = np.flatnonzero(layout.counts <= _FEW)
    if len(few):
        column = np.arange(layout.counts[few].max())
        mates = layout.starts[few, None] + np.minimum(column, layout.counts[few, None] - 1)
        mates = np.repeat(mates, layout.counts[few], axis=0)
        rows = np.flatnonzero(layout.counts[layout.ids[layout.order]] <= _FEW)
        square = frame.squares(torch.from_numpy(rows), torch.from_numpy(mates))
        far[rows] = square.amax(dim=1).numpy()
        slack[rows] = far[rows] * _ROUNDING
    for c in np.flatnonzero(layout.counts > _FEW).tolist():
        start, count = int(layout.starts[c]), int(layout.counts[c])
        members = slice(start, start + count)
        own = Frame.of(frame.given[members], dtype=screen_dtype())
        scale = (float(own.unit) / float(frame.unit)) ** 2
        slack[members] = (own.band + own.band.max()).double().numpy() * scale
        for i in range(0, count, _TILE):
            part = slice(i, min(i + _TILE, count))
            peak = short_squares(own, part).amax(1) + own.norms[part]
            far[start + i : start + part.stop] = peak.clamp_(min=0.0).double().numpy() * scale
    return far, slack
