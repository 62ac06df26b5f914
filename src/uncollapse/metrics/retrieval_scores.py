"""Retrieval quality, exact: recall@k and precision@k (EPS §5), R-precision, MAP@R, mAP, MRR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from uncollapse._base.arrays import Array, ArrayLike, class_ids
from uncollapse._base.check import InputError, check_choice, check_int
from uncollapse._base.progress import ProgressOption, progress_reporter
from uncollapse.metrics.faiss_index import neighbour_ranks
from uncollapse.metrics.rank_tasks import (
    BEYOND,
    TIES,
    joint_ids,
    make_task,
    ranked_points,
    two_sets,
)
from uncollapse.metrics.ranking import parse_bytes, positive_ranks
from uncollapse.metrics.result_table import Result, text_table

__all__ = ["RetrievalResult", "Terms", "check_ks", "means", "retrieval"]


# What one query adds to each mean: formulas on the 0-based ranks of its relevant items.


class Terms:
    """The terms by name, NaN for a query with nothing relevant; filled block by block."""

    def __init__(self, queries: int, names: list[str]) -> None:
        self.values = {name: np.full(queries, np.nan) for name in names}

    def add_retrieval(
        self, rows: Array, start: Array, ranks: Array, ks: tuple[int, ...], size: int
    ) -> None:
        """Fill in recall, precision, R-precision, MAP@R, MRR (and mAP if it has a name)."""
        rows, counts, first = _with_match(rows, start)
        if not len(rows):
            return
        nearest = ranks[first]
        for k in ks:
            self.values[f"recall@{k}"][rows] = nearest < k
            # Ranks ascend, so the first k positives are enough.
            head = first[:, None] + np.minimum(np.arange(min(k, counts.max())), counts[:, None] - 1)
            fits = np.arange(head.shape[1]) < counts[:, None]
            found = ((ranks[head] < k) & fits).sum(1)
            self.values[f"precision@{k}"][rows] = found / min(k, size)
        hit = ranks < np.repeat(counts, counts)
        self.values["r_precision"][rows] = np.add.reduceat(hit, first, dtype=np.int64) / counts
        # Precision of the list cut just after each relevant item.
        precision = (_places(ranks, first, counts) + 1) / (ranks + 1.0)
        if "mAP" in self.values:
            self.values["mAP"][rows] = np.add.reduceat(precision, first) / counts
        precision *= hit
        self.values["map@r"][rows] = np.add.reduceat(precision, first) / counts
        self.values["mrr"][rows] = np.where(nearest == BEYOND, 0.0, 1 / (nearest + 1.0))

    def add_reid(
        self, rows: Array, start: Array, ranks: Array, ks: tuple[int, ...], average: str
    ) -> None:
        """Fill in mAP, CMC and mINP."""
        rows, counts, first = _with_match(rows, start)
        if not len(rows):
            return
        place = _places(ranks, first, counts)
        precision = (place + 1) / (ranks + 1.0)
        if average == "trapezoid":
            # Precision just before the match: 1 at the top of the list.
            before = np.where(ranks > 0, place / np.maximum(ranks, 1), 1.0)
            precision = (precision + before) / 2
        self.values["mAP"][rows] = np.add.reduceat(precision, first) / counts
        for k in ks:
            self.values[f"cmc@{k}"][rows] = ranks[first] < k
        self.values["mINP"][rows] = counts / (ranks[first + counts - 1] + 1.0)


def means(terms: Mapping[str, Array], kept: Array) -> dict[str, float]:
    """Mean of each term over the queries `kept`, NaN over none."""
    return {
        name: float(values[kept].mean()) if kept.any() else float("nan")
        for name, values in terms.items()
    }


def _with_match(rows: Array, start: Array) -> tuple[Array, Array, Array]:
    """Those of the queries that have a relevant item, how many they have, where theirs begin."""
    counts = np.diff(start)
    some = counts > 0
    return rows[some], counts[some], start[:-1][some]


def _places(ranks: Array, first: Array, counts: Array) -> Array:
    """The i of each rank r_i."""
    place = np.arange(0.0, len(ranks))
    place -= np.repeat(first, counts)
    return place


# What a ranking is worth: means over the queries, and the terms they are made of.


@dataclass(frozen=True)
class RetrievalResult(Result):
    """Means over the queries that have a relevant item; NaN if none has.

    `map` is None unless `full_map` asked for it. `per_query` holds each mean's terms in the order
    of the queries, NaN where nothing is relevant, and `labels` the queries' labels.
    `index_recall` is None for an exact result, else the share of exact neighbours that the
    approximate index found on a sample.
    """

    recall: Mapping[int, float]
    precision: Mapping[int, float]
    r_precision: float
    map_at_r: float
    mrr: float
    queries: int
    queries_without_match: int
    gallery_size: int
    ties: str
    map: float | None = None
    index_recall: float | None = None
    per_query: Mapping[str, Array] = field(default_factory=dict, repr=False, compare=False)
    labels: Array | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of_terms(
        cls,
        terms: Mapping[str, Array],
        labels: Array | None = None,
        *,
        gallery_size: int,
        ties: str,
        index_recall: float | None = None,
    ) -> RetrievalResult:
        """The means of terms by query, named as in `per_query`; `labels` of the queries."""
        kept = ~np.isnan(terms["mrr"])
        mean = means(terms, kept)
        at_k = {
            what: {
                int(name.partition("@")[2]): value
                for name, value in mean.items()
                if name.startswith(f"{what}@")
            }
            for what in ("recall", "precision")
        }
        return cls(
            recall=at_k["recall"],
            precision=at_k["precision"],
            r_precision=mean["r_precision"],
            map_at_r=mean["map@r"],
            mrr=mean["mrr"],
            queries=len(kept),
            queries_without_match=int((~kept).sum()),
            gallery_size=gallery_size,
            ties=ties,
            map=mean.get("mAP"),
            index_recall=index_recall,
            per_query=terms,
            labels=labels,
        )

    @cached_property
    def per_class(self) -> dict[Any, dict[str, float]]:
        """The same means over the queries of each class, by label in ascending order.

        `queries` counts those of the class; the means leave out those with no relevant item and
        are NaN if none has one. `pandas.DataFrame(result.per_class).T` is a table of it.
        """
        if self.labels is None:
            return {}
        classes, ids = np.unique(self.labels, return_inverse=True)
        sizes = np.bincount(ids)
        kept = ~np.isnan(self.per_query["mrr"])
        matched = np.bincount(ids[kept], minlength=len(classes))
        columns: dict[str, Array] = {"queries": sizes}
        with np.errstate(invalid="ignore"):  # 0/0: no query of the class has a relevant item
            for name, values in self.per_query.items():
                columns[name] = np.bincount(ids[kept], values[kept], len(classes)) / matched
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return {
            label: dict(zip(columns, row, strict=True))
            for label, row in zip(classes.tolist(), rows, strict=True)
        }

    def to_dict(self) -> dict[str, Any]:
        """Numbers by name: recall@k, precision@k, r_precision, map@r, mAP, mrr, and the counts."""
        numbers: dict[str, Any] = {f"recall@{k}": value for k, value in self.recall.items()}
        numbers |= {f"precision@{k}": value for k, value in self.precision.items()}
        numbers |= {"r_precision": self.r_precision, "map@r": self.map_at_r}
        numbers |= {"mAP": self.map} if self.map is not None else {}
        numbers["mrr"] = self.mrr
        numbers |= {
            "queries": self.queries,
            "queries_without_match": self.queries_without_match,
            "gallery_size": self.gallery_size,
            "ties": self.ties,
        }
        if self.index_recall is not None:
            numbers["index_recall"] = self.index_recall
        return numbers

    def __str__(self) -> str:
        text = text_table(list(self.to_dict().items()))
        if self.queries_without_match:
            text += (
                f"\n{self.queries_without_match} of {self.queries} queries have no relevant item; "
                "the means leave them out."
            )
        return text


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
