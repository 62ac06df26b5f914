"""Retrieval over all ranks: each ranks the whole gallery for its share of the queries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from uncollapse._check import class_ids
from uncollapse.metrics import RetrievalResult, retrieval
from uncollapse.metrics._memory import parse_bytes
from uncollapse.metrics._ranks import positive_ranks
from uncollapse.metrics._task import make_task, ranked_points
from uncollapse.metrics.retrieval import _Terms
from uncollapse.training.distributed.gather import gather
from uncollapse.training.distributed.ranks import ALONE, Ranks

__all__ = ["shared_retrieval"]


def shared_retrieval(
    points: Tensor, labels: Tensor, ranks: Ranks = ALONE, *, ks: Sequence[int] = (1, 2, 4, 8)
) -> RetrievalResult:
    """`retrieval(points, labels, ks=ks)`, every number the same, with the queries shared out.

    Each rank holds all `points`. In one process tiles serve both sides, half the products; a share
    cannot, so N ranks take 2/N of one process's time.

    >>> shared_retrieval(torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([0, 0, 1])).recall[1]
    1.0
    """
    if ranks.size == 1 or len(points) < ranks.size:
        return retrieval(points, labels, ks=ks, progress=False)
    z = ranked_points(points, "points")
    ids, _ = class_ids(labels, len(z), "labels")
    rows, size = np.arange(len(z)), len(z) - 1
    mine = rows[ranks.share(len(z))]
    ks = tuple(sorted(set(ks)))
    depth = min(max(ks), max(size, 1))
    task = make_task(z[mine], ids[mine], z, ids, mine, rows, lambda r: np.maximum(r, depth))
    terms = _Terms(len(z), ks, size)
    for low, high, start, found in positive_ranks(
        task, normalize=False, ties="pessimistic", engine="auto", max_memory=parse_bytes("256MB")
    ):
        terms.add(mine[task.query_order[low:high]], start, found)
    table = torch.from_numpy(np.stack([values[mine] for values in terms._values.values()], 1))
    whole = gather(table, ranks, counts=ranks.counts(len(z))).numpy()
    for name, column in zip(terms._values, whole.T, strict=True):
        terms._values[name] = np.ascontiguousarray(column)
    return terms.result("pessimistic", size, None)
