"""Retrieval over all ranks: each ranks the whole gallery for its share of the queries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from uncollapse.metrics import RetrievalResult, retrieval
from uncollapse.training.distributed.gathering import gather
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
    mine = np.arange(len(points))[ranks.share(len(points))]
    part = retrieval(points, labels, ks=ks, progress=False, rows=mine)
    table = torch.from_numpy(np.stack(list(part.per_query.values()), axis=1))
    whole = gather(table, ranks, counts=ranks.counts(len(points))).numpy()
    columns = (np.ascontiguousarray(column) for column in whole.T)
    terms = dict(zip(part.per_query, columns, strict=True))
    return RetrievalResult.of_terms(
        terms, labels.cpu().numpy(), gallery_size=part.gallery_size, ties=part.ties
    )
