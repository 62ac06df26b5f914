"""Nearest neighbours of queries in an embedded gallery, exact."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from uncollapse._base.check import InputError, check_int
from uncollapse._base.progress import ProgressOption, progress_reporter
from uncollapse.distances import pairwise_distances

__all__ = ["Neighbours", "first_columns", "nearest"]

_BLOCK = 256
_SORTED_BELOW = 64  # gallery rows up to which sorting them all is as quick as choosing


@dataclass(frozen=True)
class Neighbours:
    """`rows[q]` are the gallery rows nearest to query q, nearest first, at `distances[q]`."""

    rows: Tensor
    distances: Tensor


def nearest(
    queries: Tensor,
    gallery: Tensor,
    k: int,
    exclude: Tensor | None = None,
    *,
    progress: ProgressOption = False,
) -> Neighbours:
    """The k nearest gallery rows of each query; `exclude[q]` is a row query q must not find.

    Ties go to the lower row.

    >>> found = nearest(torch.tensor([[0.0]]), torch.tensor([[3.0], [1.0], [2.0]]), k=2)
    >>> found.rows.tolist(), found.distances.tolist()
    ([[1, 2]], [[1.0, 2.0]])
    """
    room = len(gallery) - (exclude is not None)
    if check_int("k", k) > room:
        raise InputError("k", k, f"at most {room}, the size of the gallery")
    parts = []
    with progress_reporter(progress, "searching") as report:
        for start in range(0, len(queries), _BLOCK):
            block = pairwise_distances(queries[start : start + _BLOCK], gallery)
            if exclude is not None:
                chosen = exclude[start : start + _BLOCK]
                block[torch.arange(len(block)), chosen] = torch.inf
            order = first_columns(block, k)
            parts.append((order, block.gather(1, order)))
            report(min(start + _BLOCK, len(queries)), len(queries))
    rows, distances = (torch.cat(part) for part in zip(*parts, strict=True))
    return Neighbours(rows, distances)


def first_columns(block: Tensor, k: int) -> Tensor:
    """The columns of each row's k smallest, in order; of equal ones the lower column first."""
    if block.shape[1] <= max(_SORTED_BELOW, 4 * k):
        return torch.argsort(block, dim=1, stable=True)[:, :k]
    found = torch.topk(block, k, dim=1, largest=False).indices.sort(dim=1).values
    found = found.gather(1, torch.argsort(block.gather(1, found), dim=1, stable=True))
    # Where others equal the last one, which of them was chosen is chance.
    last = block.gather(1, found[:, -1:])
    tied = ((block <= last).sum(dim=1) > k).nonzero().flatten()
    if len(tied):
        found[tied] = torch.argsort(block[tied], dim=1, stable=True)[:, :k]
    return found
