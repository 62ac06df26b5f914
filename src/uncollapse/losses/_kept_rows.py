"""Rows of earlier batches beside those of a batch: how they move, and which of them are itself."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike, label_array, points
from uncollapse._base.check import InputError
from uncollapse.distances.frame import working_dtype
from uncollapse.distances.pairwise import pairwise_distances
from uncollapse.mining.tuples import Pairs, Triplets

__all__ = ["Fresh", "masked", "moved", "repeated", "without_own"]


class Fresh(NamedTuple):
    """Rows that are to be remembered, off the graph, with labels and, where known, sample ids."""

    rows: Tensor
    labels: Tensor
    ids: Tensor


def moved(kept: Tensor, rows: Tensor) -> Tensor:
    """Kept rows r as they are, on the graph as c(x) + (r - c₀)·μ(x)/μ₀: they move with the batch.

    c and μ are centre and mean distance of the batch, c₀ and μ₀ their present values. A loss of x
    and r that does not change when all is shifted then has Σ ∇L = 0, and one that is homogeneous
    the drift that Euler's identity gives it: both as if r were embedded anew.
    """
    wide = rows.to(working_dtype(rows))
    centre, then = wide.mean(0), wide.detach().mean(0)
    mean = pairwise_distances(wide).sum() if len(wide) > 1 else wide.new_zeros(())
    grown = mean / mean.detach() - 1.0 if float(mean.detach()) > 0 else mean * 0.0
    shift: Tensor = (centre - then) + (kept.to(wide) - then) * grown
    return kept + shift.to(kept.dtype)


def masked(
    embeddings: ArrayLike, labels: Any, sample_ids: ArrayLike | None, mask: ArrayLike
) -> tuple[Fresh, Tensor]:
    """Rows with labels and ids, and which of them are to be enqueued, all checked."""
    rows = points(embeddings, "embeddings")
    numbers = _numbers(labels, len(rows), "labels")
    known = torch.full_like(numbers, -1)
    if sample_ids is not None:
        known = _numbers(sample_ids, len(rows), "sample_ids")
    given = torch.as_tensor(mask)
    if given.dtype != torch.bool or given.shape != (len(rows),):
        allowed = f"{len(rows)} booleans, one for each row"
        raise InputError("enqueue_mask", f"{given.dtype} {tuple(given.shape)}", allowed)
    if bool(given.all()):
        raise InputError("enqueue_mask", "all rows", "at least one row that is an anchor")
    return Fresh(rows, numbers.to(rows.device), known.to(rows.device)), given.to(rows.device)


def _numbers(values: ArrayLike, count: int, name: str) -> Tensor:
    array = label_array(values, count, name)
    if array.dtype.kind not in "iufb":
        raise InputError(name, "names", "whole numbers: a memory outlives the batch")
    return torch.as_tensor(array.astype("int64"))


def without_own(found: Triplets | Pairs) -> Triplets | Pairs:
    """Tuples without a row that is its own positive."""
    other = found.anchor != found.positive
    if isinstance(found, Triplets):
        return Triplets(*(index[other] for index in found))
    return Pairs(found.anchor[other], found.positive[other], found.other, found.negative)


def repeated(kept: Tensor, rows: Tensor) -> Tensor:
    """Which of the kept rows are exactly one of the rows."""
    alike, one = (kept[:, :1] == rows.detach()[:, 0]).nonzero(as_tuple=True)
    same = (kept[alike] == rows.detach()[one]).all(1)
    return torch.zeros(len(kept), dtype=torch.bool, device=kept.device).index_fill_(
        0, alike[same], True
    )
