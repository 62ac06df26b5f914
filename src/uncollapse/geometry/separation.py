"""Triplet separation and the hard-mined loss: HNM definition 2.1, (4) and (5)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, points
from uncollapse._base.check import check_number
from uncollapse._base.classes import ClassLayout
from uncollapse.distances import pairwise_distances
from uncollapse.geometry._screen import Screen, nearest_in

__all__ = ["Separation", "hard_mined_loss", "is_triplet_separated", "separation"]

_TILE = 1024
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
    best: Separation | None = None
    step = max(1, _EXACT_ROWS // len(x))
    for i in range(0, len(anchors), step):
        rows = torch.from_numpy(anchors[i : i + step])
        distance = pairwise_distances(wide[rows], wide)
        same = ids[rows][:, None] == ids
        # The anchor's distance to itself is the float 0 it should be, not a rounding of it.
        distance[torch.arange(len(rows)), rows] = 0.0
        inside = distance.masked_fill(~same, -1.0).numpy()
        positive = inside.argmax(axis=1)
        near, negative = nearest_in(distance.masked_fill_(same, np.inf))
        margin = near - inside[np.arange(len(rows)), positive]
        a = int(margin.argmin())
        if best is None or margin[a] < best.margin:
            found = int(rows[a]), int(positive[a]), int(negative[a])
            best = Separation(float(margin[a]), *found)
    if best is None:
        raise RuntimeError("no anchor was left to decide between")
    return best


def _candidates(x: Tensor, layout: ClassLayout) -> Array:
    """Anchors whose margin, known to float32 with a proven bound, may be the smallest."""
    rows = torch.from_numpy(layout.order)
    ordered = x[rows]
    screen = Screen.of(ordered)
    near = _nearest_negative_squares(screen, layout)
    far, far_slack = _farthest_positive_squares(ordered, layout, screen.scale)
    low = np.sqrt(np.maximum(near - screen.slack, 0)) - np.sqrt(far + far_slack)
    high = np.sqrt(near + screen.slack) - np.sqrt(np.maximum(far - far_slack, 0))
    return np.sort(layout.order[low <= high.min()])


def _nearest_negative_squares(screen: Screen, layout: ClassLayout) -> Array:
    """Squared distance of each row (in class order) to another class, by symmetric tiles."""
    n, ids = layout.size, layout.ids[layout.order]
    stops = (layout.starts + layout.counts)[ids]
    points_t, squares = screen.points.T, screen.squares
    nearest = np.full(n, np.inf, np.float32)
    tile = torch.empty(_TILE * _TILE)
    for top in range(0, n, _TILE):
        bottom = min(top + _TILE, n)
        for left in range(top, n, _TILE):
            right = min(left + _TILE, n)
            square = tile[: (bottom - top) * (right - left)].view(bottom - top, right - left)
            block = screen.points[top:bottom]
            torch.addmm(squares[left:right], block, points_t[:, left:right], alpha=-2.0, out=square)
            square += squares[top:bottom, None]
            view = square.numpy()
            if stops[bottom - 1] > left:  # rows are class by class: the tile touches a class block
                view[ids[top:bottom, None] == ids[left:right]] = np.inf
            np.minimum(nearest[top:bottom], view.min(axis=1), out=nearest[top:bottom])
            if left > top:
                np.minimum(nearest[left:right], view.min(axis=0), out=nearest[left:right])
    return np.maximum(nearest.astype(np.float64), 0)


def _farthest_positive_squares(x: Tensor, layout: ClassLayout, scale: float) -> tuple[Array, Array]:
    """Squared distance of each row to its farthest classmate over scale², and its error bound.

    Each class is screened about its own mean, so that tight classes far apart stay exact.
    """
    far, slack = np.zeros(len(x)), np.zeros(len(x))
    for start, count in zip(layout.starts.tolist(), layout.counts.tolist(), strict=True):
        members = slice(start, start + count)
        screen = Screen.of(x[members])
        unit = (screen.scale / scale) ** 2
        slack[members] = screen.slack * unit
        for i in range(0, count, _TILE):
            rows = slice(i, min(i + _TILE, count))
            square = torch.addmm(
                screen.squares, screen.points[rows], screen.points.T, alpha=-2.0
            ).numpy()
            peak = square.max(axis=1) + screen.squares[rows].numpy()
            far[start + rows.start : start + rows.stop] = np.maximum(peak, 0) * unit
    return far, slack
