"""From labels to a ranking task: one order in which every class is a range of positions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, class_ids, points
from uncollapse._base.check import InputError

__all__ = ["Task", "joint_ids", "make_task", "ranked_points", "two_sets"]


@dataclass(frozen=True)
class Task:
    """Who is compared with whom. Positions are places in the two orders.

    Query position q's own class is gallery positions `own_low[q] : own_high[q]`; those whose skip
    code differs from the query's are its `counts[q]` positives, the others are ignored; everything
    outside is a negative. Ranks are exact below `limit[q]`. `gallery is None`: the query set.
    """

    queries: Tensor
    query_order: Array
    gallery: Tensor | None
    gallery_order: Array
    own_low: Array
    own_high: Array
    query_skip: Array
    gallery_skip: Array
    counts: Array
    limit: Array

    def sets(self) -> list[tuple[str, Tensor, Array]]:
        """The one or two sets of points: name, rows and order."""
        one = [("queries", self.queries, self.query_order)]
        if self.gallery is None:
            return one
        return [*one, ("gallery", self.gallery, self.gallery_order)]

    def of_queries(self, positions: Array) -> Task:
        """The same task for some query positions only; its gallery is a set of its own."""
        mine = ("query_order", "own_low", "own_high", "query_skip", "counts", "limit")
        gallery = self.queries if self.gallery is None else self.gallery
        return replace(self, gallery=gallery, **{n: getattr(self, n)[positions] for n in mine})


def make_task(
    queries: Tensor,
    query_ids: Array,
    gallery: Tensor | None,
    gallery_ids: Array,
    query_skip: Array,
    gallery_skip: Array,
    limit: Callable[[Array], Array],
) -> Task:
    """A task whose positives are the gallery rows of the same id and another skip code.

    `limit` turns each query's count of positives into the rank from which ranks need not be exact.
    """
    query_order = np.argsort(query_ids, kind="stable")
    gallery_order = np.argsort(gallery_ids, kind="stable")
    q, g = query_ids[query_order], gallery_ids[gallery_order]
    q_skip, g_skip = query_skip[query_order], gallery_skip[gallery_order]
    own_low, own_high = np.searchsorted(g, q, side="left"), np.searchsorted(g, q, side="right")
    codes, skip = np.unique(np.concatenate([q_skip, g_skip]), return_inverse=True)
    skip = skip.astype(np.int64)
    q_skip, g_skip = skip[: len(q)], skip[len(q) :]
    pairs = np.sort(g * len(codes) + g_skip)
    mine = q * len(codes) + q_skip
    skipped = np.searchsorted(pairs, mine, side="right") - np.searchsorted(pairs, mine, side="left")
    counts = own_high - own_low - skipped
    return Task(
        queries, query_order, gallery, gallery_order, own_low, own_high, q_skip, g_skip, counts,
        np.minimum(limit(counts), np.iinfo(np.int32).max).astype(np.int64),
    )  # fmt: skip


def two_sets(
    queries: ArrayLike, gallery: ArrayLike, names: tuple[str, str] = ("queries", "gallery")
) -> tuple[Tensor, Tensor]:
    """Both sets checked, detached, of one dtype and width, on a device that has float64."""
    x, y = ranked_points(queries, names[0]), ranked_points(gallery, names[1])
    if x.shape[1] != y.shape[1]:
        raise InputError(names[1], f"{y.shape[1]} columns", f"{x.shape[1]} as in {names[0]}")
    dtype = torch.promote_types(x.dtype, y.dtype)
    return x.to(dtype), y.to(device=x.device, dtype=dtype)


def ranked_points(x: ArrayLike, name: str) -> Tensor:
    """One set checked, detached and contiguous, on a device that has float64."""
    tensor = points(x, name).detach()
    return (tensor.cpu() if tensor.device.type == "mps" else tensor).contiguous()


def joint_ids(
    first: ArrayLike, n: int, second: ArrayLike, m: int, names: tuple[str, str]
) -> tuple[Array, Array]:
    """Class numbers of two label lists over their common classes; nothing is cast to float."""
    ids_a, classes_a = class_ids(first, n, names[0])
    ids_b, classes_b = class_ids(second, m, names[1])
    text = [_are_names(classes) for classes in (classes_a, classes_b)]
    if text[0] != text[1]:
        given = " and ".join(str(classes.dtype) for classes in (classes_a, classes_b))
        raise InputError(names[1], given, f"labels of one kind with {names[0]}")
    if classes_a.dtype != classes_b.dtype and not text[0]:  # uint64 and int64 would become float64
        classes_a, classes_b = classes_a.astype(object), classes_b.astype(object)
    _, place = np.unique(np.concatenate([classes_a, classes_b]), return_inverse=True)
    place = place.astype(np.int64)
    return place[: len(classes_a)][ids_a], place[len(classes_a) :][ids_b]


def _are_names(classes: Array) -> bool:
    return classes.dtype.kind in "US" or isinstance(classes.flat[0], str | bytes)
