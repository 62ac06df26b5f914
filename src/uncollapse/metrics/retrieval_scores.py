"""Retrieval quality, exact: recall@k and precision@k (EPS §5), R-precision, MAP@R, mAP, MRR."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from uncollapse._base.arrays import Array, ArrayLike, class_ids
from uncollapse._base.check import InputError, check_choice, check_int
from uncollapse._base.progress import ProgressOption, progress_reporter
from uncollapse.metrics._ranks import parse_bytes, positive_ranks
from uncollapse.metrics._strip import BEYOND, TIES
from uncollapse.metrics._task import joint_ids, make_task, ranked_points, two_sets
from uncollapse.metrics._terms import Terms
from uncollapse.metrics.faiss_index import neighbour_ranks
from uncollapse.metrics.retrieval_result import RetrievalResult

__all__ = ["check_ks", "retrieval"]


def retrieval(
    queries: ArrayLike,
    query_labels: ArrayLike,
    gallery: ArrayLike | None = None,
    gallery_labels: ArrayLike | None = None,
    *,
    ks: Sequence[int] = (1, 2, 4, 8),
    full_map: bool = False,
    normalize: bool = False,
    ties: str = "pessimistic",
    max_memory: int | str = "256MB",
    index: str = "exact",
    target_recall: float = 0.95,
    progress: ProgressOption = None,
    seed: int = 0,
    rows: ArrayLike | None = None,
) -> RetrievalResult:
    """Rank the gallery by Euclidean distance to each query and score the ranking.

    Without a gallery each query searches all the others. An item is relevant if it has the query's
    label; labels are integers or strings of any size. With R relevant items at 0-based ranks
    r_0 < r_1 < ...:

    - recall@k: the share of queries with a relevant item among the first k (r_0 < k);
    - precision@k: relevant items among the first k, over k (over the gallery's size if smaller);
    - R-precision: relevant items among the first R, divided by R;
    - MAP@R: (1/R) Σ over r_i < R of (i + 1)/(r_i + 1);
    - MRR: 1/(r_0 + 1);
    - mAP, with `full_map`: (1/R) Σ over all i of (i + 1)/(r_i + 1), the average precision over all
      relevant items. The others need ranks up to the largest k or R only; this one needs all, so
      every pair nearer than a query's farthest relevant item is counted: about three times the
      time, the same memory.

    The result has the means over all queries, each query's terms (`per_query`) and the means of
    each class (`per_class`).

    **Ties.** A wrong item at the same distance as a relevant one comes first (`"pessimistic"`), so
    a collapsed embedding scores 0, not 1; `"optimistic"` gives the other bound. Squared distances
    are the same if they differ by less than 1e-12 of their size (for `normalize`, also distances
    by less than 4e-15).

    **Exact.** A float32 product settles what its error bound allows; the rest is settled by float64
    differences of the input, so the result is that of float64 arithmetic at any spread and place.
    Compiled with numba if it is installed, with torch otherwise: the same result.

    Parameters beyond the obvious: `normalize` scales rows to norm 1, which ranks by cosine.
    `max_memory` bounds what is allocated beside the input ("150MB" or bytes). `index="faiss"`
    searches approximately (millions of items), with `target_recall` of the exact neighbours, and
    reports the recall it measured on a sample; ranks past its list count as not found. `progress`
    is True, False, None (a bar on a terminal) or a function(done, total). Without a gallery, `rows`
    makes queries of these rows alone, each against all others: a share of a larger evaluation.

    >>> result = retrieval([[0.0], [1.0], [5.0], [6.5]], ["a", "a", "b", "b"], ks=(1,))
    >>> result.recall[1], result.map_at_r, result.queries_without_match
    (1.0, 1.0, 0)
    >>> result.per_class["b"]["recall@1"]
    1.0
    >>> retrieval([[1.0]] * 4, [0, 0, 1, 1], ks=(1, 2)).recall  # total collapse
    {1: 0.0, 2: 0.0}
    """
    check_choice("ties", ties, TIES)
    check_choice("index", index, ("exact", "faiss"))
    if full_map and index != "exact":
        raise InputError("index", repr(index), "'exact' with full_map, which needs every rank")
    budget = parse_bytes(max_memory)
    ks = check_ks(ks)
    if (gallery is None) != (gallery_labels is None):
        missing = "gallery" if gallery is None else "gallery_labels"
        raise InputError(missing, "None", "gallery and gallery_labels both, or neither")
    if gallery is None or gallery_labels is None:
        x, y = ranked_points(queries, "queries"), None
        q_ids, classes = class_ids(query_labels, len(x), "query_labels")
        labels = classes[q_ids]
        g_ids, q_skip = q_ids, np.arange(len(x))
        g_skip, size = q_skip, len(x) - 1
        if rows is not None:
            q_skip = _check_rows(rows, len(x))
            x, y, q_ids, labels = x[q_skip], x, q_ids[q_skip], labels[q_skip]
    else:
        if rows is not None:
            raise InputError("rows", "given with a gallery", "rows only without a gallery")
        x, y = two_sets(queries, gallery)
        q_ids, g_ids = joint_ids(
            query_labels, len(x), gallery_labels, len(y), ("query_labels", "gallery_labels")
        )
        own_ids, classes = class_ids(query_labels, len(x), "query_labels")
        labels, size = classes[own_ids], len(y)
        q_skip, g_skip = np.full(len(x), -1), np.arange(size)
    depth = min(max(ks), max(size, 1))
    limit = (lambda r: np.full(len(r), BEYOND)) if full_map else (lambda r: np.maximum(r, depth))
    task = make_task(x, q_ids, y, g_ids, q_skip, g_skip, limit)
    names = [f"{what}@{k}" for what in ("recall", "precision") for k in ks]
    terms = Terms(len(x), [*names, "r_precision", "map@r", *["mAP"] * full_map, "mrr"])
    index_recall = None
    with progress_reporter(progress, "retrieval") as report:
        if index == "faiss":
            blocks, index_recall = neighbour_ranks(
                task, depth=depth, normalize=normalize, ties=ties, target=target_recall, seed=seed
            )
        else:
            blocks = positive_ranks(
                task, normalize=normalize, ties=ties, max_memory=budget, report=report
            )
        for low, high, start, ranks in blocks:
            terms.add_retrieval(task.query_order[low:high], start, ranks, ks, size)
    return RetrievalResult.of_terms(
        terms.values, labels, gallery_size=size, ties=ties, index_recall=index_recall
    )


def check_ks(ks: Sequence[int]) -> tuple[int, ...]:
    """Ranks to report, ascending and once each, or an `InputError`."""
    try:
        values = list(ks)
    except TypeError:
        raise InputError("ks", repr(ks), "a list of whole numbers of at least 1") from None
    if not values:
        raise InputError("ks", "an empty list", "at least one whole number")
    return tuple(sorted({check_int("ks", k) for k in values}))


def _check_rows(rows: ArrayLike, size: int) -> Array:
    values = np.asarray(rows)
    if values.ndim != 1 or not len(values) or values.dtype.kind not in "iu":
        given = f"{values.dtype} of shape {values.shape}"
        raise InputError("rows", given, "whole numbers, at least one, of shape [Q]")
    if values.min() < 0 or values.max() >= size:
        given = f"{values.min()} to {values.max()}"
        raise InputError("rows", given, f"row numbers from 0 to {size - 1}")
    return values.astype(np.int64)
