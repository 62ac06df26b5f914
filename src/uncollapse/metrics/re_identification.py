"""Person re-identification by the Market-1501 protocol: mAP, CMC and mINP (HNM §4's data sets)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from uncollapse._base.arrays import Array, ArrayLike, label_array
from uncollapse._base.check import InputError, check_choice
from uncollapse._base.progress import ProgressOption, progress_reporter
from uncollapse.metrics.rank_tasks import BEYOND, TIES, joint_ids, make_task, two_sets
from uncollapse.metrics.ranking import parse_bytes, positive_ranks
from uncollapse.metrics.re_ranking import ReRanking, reranked_ranks
from uncollapse.metrics.result_table import Result
from uncollapse.metrics.retrieval_scores import Terms, check_ks, means

__all__ = ["ReidResult", "reid", "searching_rows"]


@dataclass(frozen=True)
class ReidResult(Result):
    """Means over the queries that have a match under another camera; NaN if none has.

    `per_query` holds each mean's terms in the order of the queries, NaN where there is no match.
    """

    map: float
    cmc: Mapping[int, float]
    minp: float
    queries: int
    queries_without_match: int
    gallery_size: int
    junk: int
    per_query: Mapping[str, Array] = field(default_factory=dict, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Numbers by name: mAP, cmc@k, mINP, and the counts."""
        return {
            "mAP": self.map,
            **{f"cmc@{k}": value for k, value in self.cmc.items()},
            "mINP": self.minp,
            "queries": self.queries,
            "queries_without_match": self.queries_without_match,
            "gallery_size": self.gallery_size,
            "junk": self.junk,
        }


def reid(
    queries: ArrayLike,
    query_ids: ArrayLike,
    query_cams: ArrayLike,
    gallery: ArrayLike,
    gallery_ids: ArrayLike,
    gallery_cams: ArrayLike,
    *,
    ks: Sequence[int] = (1, 5, 10),
    average: str = "hits",
    normalize: bool = False,
    ties: str = "pessimistic",
    rerank: ReRanking | None = None,
    max_memory: int | str = "256MB",
    progress: ProgressOption = None,
) -> ReidResult:
    """Rank the gallery for each query as Market-1501 does and score the ranking.

    A gallery item with the query's id and the query's camera is taken out of its ranking; items of
    id -1 (junk) are taken out of all; items of id 0 (distractors) stay, and are wrong for everyone.

    mAP is the plain mean over queries of the average precision over **all** matches (not MAP@R):
    `average="hits"` takes the precision at each match, as today's toolboxes do;
    `average="trapezoid"` takes the area under the interpolated curve, as the data set's first
    evaluation script did. CMC@k is the share of queries with a match among the first k. mINP is
    the mean of (number of matches)/(1-based rank of the last match). Ties and exactness are those
    of `retrieval`.

    With `rerank=ReRanking()` the gallery, without its junk, is ordered by the re-ranked distances
    of `metrics.rerank`; those that differ by less than 1e-12 are ties.

    >>> result = reid([[0.0]], [7], [1], [[0.1], [0.2], [0.3], [0.4]], [7, -1, 0, 7], [1, 2, 2, 2])
    >>> result.map, result.cmc[1], result.cmc[5], result.minp  # same camera and junk do not count
    (0.5, 0.0, 1.0, 0.5)
    """
    check_choice("ties", ties, TIES)
    check_choice("average", average, ("hits", "trapezoid"))
    if rerank is not None and not isinstance(rerank, ReRanking):
        raise InputError("rerank", repr(rerank), "ReRanking(k1, k2, lambda_value) or None")
    budget = parse_bytes(max_memory)
    wanted = check_ks(ks)
    x, y = two_sets(queries, gallery)
    asked = (len(x), "query_ids")
    nobody = np.flatnonzero(_is(query_ids, -1, *asked) | _is(query_ids, 0, *asked))
    if len(nobody):
        raise InputError("query_ids", f"-1 or 0 in row {nobody[0]}", "ids of persons only")
    keep = ~_is(gallery_ids, -1, len(y), "gallery_ids")
    q_ids, g_ids = joint_ids(query_ids, len(x), gallery_ids, len(y), ("query_ids", "gallery_ids"))
    q_cams, g_cams = joint_ids(
        query_cams, len(x), gallery_cams, len(y), ("query_cams", "gallery_cams")
    )
    if not keep.any():
        raise InputError("gallery_ids", "junk (-1) only", "at least one item that is not junk")
    if not keep.all():
        y, g_ids, g_cams = y[torch.from_numpy(keep).to(y.device)], g_ids[keep], g_cams[keep]
    task = make_task(x, q_ids, y, g_ids, q_cams, g_cams, lambda r: np.full(len(r), BEYOND))
    names = ["mAP", *(f"cmc@{k}" for k in wanted), "mINP"]
    terms = Terms(len(x), names)
    how: dict[str, Any] = {"normalize": normalize, "ties": ties, "max_memory": budget}
    with ExitStack() as stack:
        if rerank is None:
            report = stack.enter_context(progress_reporter(progress, "re-identification"))
            found = positive_ranks(task, **how, report=report)
        else:
            found = reranked_ranks(task, x, y, rerank, **how, progress=progress)
        for low, high, start, ranks in found:
            terms.add_reid(task.query_order[low:high], start, ranks, wanted, average)
    kept = ~np.isnan(terms.values["mAP"])
    mean = means(terms.values, kept)
    return ReidResult(
        map=mean["mAP"],
        cmc={k: mean[f"cmc@{k}"] for k in wanted},
        minp=mean["mINP"],
        queries=len(x),
        queries_without_match=int((~kept).sum()),
        gallery_size=len(y),
        junk=int((~keep).sum()),
        per_query=terms.values,
    )


def searching_rows(ids: Array) -> Array:
    """Rows whose id is a person's: junk (-1) and distractors (0) search for nobody.

    >>> searching_rows(np.array([3, 0, -1, 4])).tolist()
    [0, 3]
    """
    return np.flatnonzero(~_is(ids, -1, len(ids), "ids") & ~_is(ids, 0, len(ids), "ids"))


def _is(ids: ArrayLike, value: int, n: int, name: str) -> Array:
    array = label_array(ids, n, name)
    return array == value if array.dtype.kind in "iuf" else np.zeros(n, bool)
