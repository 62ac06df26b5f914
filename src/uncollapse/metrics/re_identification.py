"""Person re-identification by the Market-1501 protocol: mAP, CMC and mINP (HNM §4's data sets)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch

from uncollapse._base.arrays import Array, ArrayLike, label_array
from uncollapse._base.check import InputError, check_choice
from uncollapse._base.progress import ProgressOption
from uncollapse._base.result import Result
from uncollapse.metrics.ranking import (
    BEYOND,
    TIES,
    Comparison,
    joint_ids,
    parse_bytes,
    positive_ranks,
    two_sets,
)
from uncollapse.metrics.reranking import ReRanking, reranked_ranks
from uncollapse.metrics.retrieval_scores import check_ks, query_means


@dataclass(frozen=True, kw_only=True, repr=False)
class ReidResult(Result):
    """Means over the queries that have a match under another camera; NaN if none has.

    `map` is the mean average precision over **all** matches (not MAP@R), `cmc[k]` the share of
    queries with a match among the first k, `minp` the mean of (number of matches)/(1-based rank of
    the last match). `per_query` holds what each query adds to the means, in the order of the
    queries, NaN where there is no match.
    """

    map: float
    cmc: Mapping[int, float]
    minp: float
    queries: int
    queries_without_match: int
    gallery_size: int
    junk: int
    per_query: Mapping[str, Array] = field(repr=False, compare=False)


def reid(
    queries: ArrayLike,
    query_ids: ArrayLike,
    query_cams: ArrayLike,
    gallery: ArrayLike,
    gallery_ids: ArrayLike,
    gallery_cams: ArrayLike,
    *,
    ks: Sequence[int] = (1, 5, 10),
    normalize: bool = False,
    ties: str = "pessimistic",
    rerank: ReRanking | None = None,
    max_memory: int | str | None = None,
    progress: ProgressOption = None,
) -> ReidResult:
    """Rank the gallery for each query as Market-1501 does and score the ranking.

    A gallery item with the query's id and the query's camera is taken out of its ranking; items of
    id -1 (junk) are taken out of all; items of id 0 (distractors) stay, and are wrong for everyone.

    Average precision is the mean of the precision at each match. Ties and exactness are those of
    `retrieval`.

    With `rerank=ReRanking()` the gallery, without its junk, is ordered by the re-ranked distances
    of `metrics.rerank`; those that differ by less than 1e-12 are ties.

    >>> result = reid([[0.0]], [7], [1], [[0.1], [0.2], [0.3], [0.4]], [7, -1, 0, 7], [1, 2, 2, 2])
    >>> result.map, result.cmc[1], result.cmc[5], result.minp  # same camera and junk do not count
    (0.5, 0.0, 1.0, 0.5)
    """
    check_choice("ties", ties, TIES)
    if rerank is not None and not isinstance(rerank, ReRanking):
        raise InputError("rerank", repr(rerank), "ReRanking(k1, k2, lambda_value) or None")
    budget, ks = parse_bytes(max_memory), check_ks(ks)
    task, junk = _compared(queries, query_ids, query_cams, gallery, gallery_ids, gallery_cams)
    options: dict[str, Any] = {"normalize": normalize, "ties": ties}
    options |= {"max_memory": budget, "progress": progress}
    if rerank is None:
        blocks = positive_ranks(task, **options, title="re-identification")
    else:
        blocks = reranked_ranks(task, rerank, **options)
    names = ["mAP", *(f"cmc@{k}" for k in ks), "mINP"]
    mean, about = query_means(task, names, blocks, partial(_terms, ks=ks))
    return ReidResult(
        map=mean["mAP"],
        cmc={k: mean[f"cmc@{k}"] for k in ks},
        minp=mean["mINP"],
        gallery_size=len(task.gallery_order),
        junk=junk,
        **about,
    )


def _compared(
    queries: ArrayLike, query_ids: ArrayLike, query_cams: ArrayLike,
    gallery: ArrayLike, gallery_ids: ArrayLike, gallery_cams: ArrayLike,
) -> tuple[Comparison, int]:  # fmt: skip
    """The comparison without junk, and the number of junk items in the gallery."""
    x, y = two_sets(queries, gallery)
    query_ids = label_array(query_ids, len(x), "query_ids")
    gallery_ids = label_array(gallery_ids, len(y), "gallery_ids")
    nobody = np.setdiff1d(np.arange(len(x)), searching_rows(query_ids))
    if len(nobody):
        raise InputError("query_ids", f"-1 or 0 in row {nobody[0]}", "ids of persons only")
    keep = ~_is(gallery_ids, -1)
    ids = joint_ids(query_ids, len(x), gallery_ids, len(y), ("query_ids", "gallery_ids"))
    cams = joint_ids(query_cams, len(x), gallery_cams, len(y), ("query_cams", "gallery_cams"))
    if not keep.any():
        raise InputError("gallery_ids", "junk (-1) only", "at least one item that is not junk")
    y = y[torch.from_numpy(keep).to(y.device)]
    task = Comparison.of(x, y, (ids[0], ids[1][keep]), (cams[0], cams[1][keep]), BEYOND)
    return task, int((~keep).sum())


def _terms(ranks: Array, first: Array, counts: Array, *, ks: Sequence[int]) -> dict[str, Array]:
    """The formulas of `ReidResult`."""
    precision = (np.arange(len(ranks)) - np.repeat(first, counts) + 1) / (ranks + 1.0)
    terms: dict[str, Array] = {f"cmc@{k}": ranks[first] < k for k in ks}
    terms["mAP"] = np.add.reduceat(precision, first) / counts
    terms["mINP"] = counts / (ranks[first + counts - 1] + 1.0)
    return terms


def searching_rows(ids: Array) -> Array:
    """Rows whose id is a person's: junk (-1) and distractors (0) search for nobody.

    >>> searching_rows(np.array([3, 0, -1, 4])).tolist()
    [0, 3]
    """
    return np.flatnonzero(~_is(ids, -1) & ~_is(ids, 0))


def _is(ids: Array, value: int) -> Array:
    return ids == value if ids.dtype.kind in "iuf" else np.zeros(len(ids), bool)
