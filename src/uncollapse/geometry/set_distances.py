"""Distances between point sets, and between labelled embeddings: EPS definition 1, HNM (12)."""

from __future__ import annotations

import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike, points64
from uncollapse._base.check import InputError, check_paired
from uncollapse._base.classes import ClassLayout
from uncollapse.distances import paired_distances, pairwise_distances

__all__ = ["hausdorff", "hausdorff_like", "set_distance", "sup_displacement"]

_BLOCK = 1 << 20  # distances held at a time


def set_distance(a: ArrayLike, b: ArrayLike) -> float:
    """Smallest distance between a point of `a` and a point of `b`: EPS definition 1.

    >>> set_distance([[0.0], [2.0]], [[5.0], [9.0]])
    3.0
    """
    first, second = _two_sets(a, b)
    step = max(1, _BLOCK // len(second))
    parts = torch.split(first, step)
    return min(float(pairwise_distances(part, second).min()) for part in parts)


def hausdorff(a: ArrayLike, b: ArrayLike) -> float:
    """Hausdorff distance d_H: how far a point of one set can be from the other set.

    >>> hausdorff([[0.0], [1.0]], [[0.0], [5.0]])
    4.0
    """
    first, second = _two_sets(a, b)
    return _directed(second, first, floor=_directed(first, second))


def hausdorff_like(x: ArrayLike, x_star: ArrayLike, labels: ArrayLike) -> float:
    """The paper's d_haus between two embeddings of the same samples: HNM (12).

    The largest, over classes, Hausdorff distance between the class's two images. It never exceeds
    `sup_displacement`, since a sample's own image is a candidate for its nearest point.

    >>> hausdorff_like([[0.0], [1.0]], [[1.0], [0.0]], [0, 0])
    0.0
    """
    first, second = _two_embeddings(x, x_star)
    layout = ClassLayout.of(labels, len(first))
    worst = 0.0
    for c in range(len(layout.classes)):
        rows = torch.from_numpy(layout.members(c))
        a, b = first[rows], second[rows]
        moved = paired_distances(a, b)
        worst = _directed(a, b, moved, floor=worst)
        worst = _directed(b, a, moved, floor=worst)
    return worst


def sup_displacement(x: ArrayLike, x_star: ArrayLike) -> float:
    """Largest move of a sample between two embeddings: the right-hand side of HNM (23).

    >>> sup_displacement([[0.0], [1.0]], [[0.5], [1.0]])
    0.5
    """
    first, second = _two_embeddings(x, x_star)
    return float(paired_distances(first, second).max())


def _directed(a: Tensor, b: Tensor, bound: Tensor | None = None, floor: float = 0.0) -> float:
    """max(floor, sup over a of the distance to b); `bound[i]` is any upper bound on row i's."""
    if bound is not None:
        # Rows are worked through from the largest bound, until none can exceed what is known.
        order = torch.argsort(bound, descending=True, stable=True)
        a, bound = a[order], bound[order]
    step = max(1, _BLOCK // len(b))
    for i in range(0, len(a), step):
        if bound is not None and float(bound[i]) <= floor:
            break
        floor = max(floor, float(pairwise_distances(a[i : i + step], b).amin(dim=1).max()))
    return floor


def _two_sets(a: ArrayLike, b: ArrayLike) -> tuple[Tensor, Tensor]:
    first, second = points64(a, "a"), points64(b, "b")
    if first.shape[1] != second.shape[1]:
        raise InputError("b", f"{second.shape[1]} columns", f"{first.shape[1]} as in a")
    return torch.from_numpy(first), torch.from_numpy(second)


def _two_embeddings(x: ArrayLike, x_star: ArrayLike) -> tuple[Tensor, Tensor]:
    first, second = points64(x), points64(x_star, "x_star")
    check_paired(first, second, ("x", "x_star"))
    return torch.from_numpy(first), torch.from_numpy(second)
