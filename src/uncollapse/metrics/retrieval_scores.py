"""Retrieval quality, exact: recall@k and precision@k (EPS §5), R-precision, MAP@R, mAP, MRR."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from uncollapse._base.arrays import Array, ArrayLike, class_ids
from uncollapse._base.check import InputError, check_bool, check_choice, check_int
from uncollapse._base.progress import ProgressOption
from uncollapse._base.result import Result
from uncollapse.metrics.ranking import (
    BEYOND,
    TIES,
    Comparison,
    RankBlock,
    joint_ids,
    parse_bytes,
    positive_ranks,
    ranked_points,
    row_numbers,
    two_sets,
)


@dataclass(frozen=True, kw_only=True, repr=False)
class RetrievalResult(Result):
    """Means over the queries that have a relevant item; NaN if none has.

    With R relevant items at 0-based ranks r_0 < r_1 < ... a query adds to

    - `recall[k]`: whether one is among the first k (r_0 < k);
    - `precision[k]`: those among the first k, over k (over the gallery's size if smaller);
    - `r_precision`: those among the first R, divided by R;
    - `map_at_r`: (1/R) Σ over r_i < R of (i + 1)/(r_i + 1);
    - `map`, None unless `full_map` asked for it: (1/R) Σ over all i of (i + 1)/(r_i + 1);
    - `mrr`: 1/(r_0 + 1).

    `r_precision` and `map_at_r` are None if only the nearest relevant items were asked for.
    `per_query` holds what each query adds, in the order of the queries, NaN where nothing is
    relevant, and `labels` the queries' labels.
    """

    recall: Mapping[int, float]
    precision: Mapping[int, float]
    r_precision: float | None = None
    map_at_r: float | None = None
    map: float | None = None
    mrr: float
    queries: int
    queries_without_match: int
    gallery_size: int
    ties: str
    per_query: Mapping[str, Array] = field(repr=False, compare=False)
    labels: Array = field(repr=False, compare=False)

    @cached_property
    def per_class(self) -> dict[Any, dict[str, float]]:
        """The same means over the queries of each class, by label in ascending order.

        `queries` counts those of the class; the means leave out those with no relevant item and
        are NaN if none has one. `pandas.DataFrame(result.per_class).T` is a table of it.
        """
        classes, ids = np.unique(self.labels, return_inverse=True)
        kept = ~np.isnan(self.per_query["mrr"])
        matched = np.bincount(ids[kept], minlength=len(classes))
        columns: dict[str, Array] = {"queries": np.bincount(ids)}
        with np.errstate(invalid="ignore"):  # 0/0: no query of the class has a relevant item
            for name, values in self.per_query.items():
                columns[name] = np.bincount(ids[kept], values[kept], len(classes)) / matched
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        return {
            label: dict(zip(columns, row, strict=True))
            for label, row in zip(classes.tolist(), rows, strict=True)
        }

    def __str__(self) -> str:
        text = super().__str__()
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
    all_matches: bool = True,
    normalize: bool = False,
    ties: str = "pessimistic",
    max_memory: int | str | None = None,
    progress: ProgressOption = None,
    rows: ArrayLike | None = None,
) -> RetrievalResult:
    """Rank the gallery by Euclidean distance to each query and score the ranking.

    Without a gallery each query searches all the others, or with `rows` only these rows do. An item
    is relevant if it has the query's label: integers or strings. `RetrievalResult` defines the
    scores; mAP, with `full_map`, needs every rank: three times the time. With `all_matches=False`
    what needs all relevant items is left out: for classes of many thousands.

    **Ties.** A wrong item at the same distance as a relevant one comes first (`"pessimistic"`), so
    a collapsed embedding scores 0, not 1; `"optimistic"` gives the other bound. Squared distances
    are the same if they differ by less than 1e-12 of their size (for `normalize`, which ranks by
    cosine, also distances by less than 4e-15). The result is that of float64 arithmetic.

    `max_memory` bounds what is allocated ("150MB" or bytes; by default 128 MB, or more where rows
    need it); `progress` is a bool or function(done, total).

    >>> result = retrieval([[0.0], [1.0], [5.0], [6.5]], ["a", "a", "b", "b"], ks=(1,))
    >>> result.recall[1], result.map_at_r, result.per_class["b"]["recall@1"]
    (1.0, 1.0, 1.0)
    >>> retrieval([[1.0]] * 4, [0, 0, 1, 1], ks=(1, 2)).recall  # total collapse
    {1: 0.0, 2: 0.0}
    """
    check_choice("ties", ties, TIES), check_bool("all_matches", all_matches)
    budget, ks = parse_bytes(max_memory), check_ks(ks)
    if check_bool("full_map", full_map) and not all_matches:
        raise InputError("full_map", full_map, "False without all_matches")
    depth = max(ks) if all_matches and not full_map else BEYOND
    sides = (queries, query_labels, gallery, gallery_labels, rows, depth)
    task, labels, size = _compared(*sides, None if all_matches else max(ks))
    how: dict[str, Any] = {"normalize": normalize, "ties": ties, "max_memory": budget}
    blocks = positive_ranks(task, **how, progress=progress, title="retrieval")
    names = [f"{score}@{k}" for score in ("recall", "precision") for k in ks]
    names += ["r_precision", "map@r"] * all_matches + ["mAP"] * full_map + ["mrr"]
    mean, about = query_means(task, names, blocks, partial(_terms, ks=ks, size=size))
    return RetrievalResult(
        recall={k: mean[f"recall@{k}"] for k in ks},
        precision={k: mean[f"precision@{k}"] for k in ks},
        r_precision=mean.get("r_precision"),
        map_at_r=mean.get("map@r"),
        map=mean.get("mAP"),
        mrr=mean["mrr"],
        gallery_size=size,
        ties=ties,
        labels=labels,
        **about,
    )


def _compared(
    queries: ArrayLike, query_labels: ArrayLike, gallery: ArrayLike | None,
    gallery_labels: ArrayLike | None, rows: ArrayLike | None, depth: int, most: int | None,
) -> tuple[Comparison, Array, int]:  # fmt: skip
    """The comparison, the labels of its queries, and the number of items each one searches."""
    if (gallery is None) != (gallery_labels is None):
        missing = "gallery" if gallery is None else "gallery_labels"
        raise InputError(missing, "None", "gallery and gallery_labels both, or neither")
    x = ranked_points(queries, "queries")
    ids, classes = class_ids(query_labels, len(x), "query_labels")
    labels, y, everyone = classes[ids], None, np.arange(len(x))
    if gallery is None or gallery_labels is None:
        size, asked = len(x) - 1, everyone
        if rows is not None:
            asked = row_numbers(rows, "rows", len(x))
            x, y, labels = x[asked], x, labels[asked]
        both_ids, skip = (ids[asked], ids), (asked, everyone)
    else:
        if rows is not None:
            raise InputError("rows", "given with a gallery", "rows only without a gallery")
        x, y = two_sets(x, gallery)
        names = ("query_labels", "gallery_labels")
        both_ids = joint_ids(query_labels, len(x), gallery_labels, len(y), names)
        size = len(y)
        skip = (np.full(len(x), -1), np.arange(size))
    depth = min(depth, max(size, 1))
    return Comparison.of(x, y, both_ids, skip, depth, most), labels, size


def query_means(
    task: Comparison,
    names: Iterable[str],
    blocks: Iterable[RankBlock],
    terms_of: Callable[..., Mapping[str, Array]],
) -> tuple[dict[str, float], dict[str, Any]]:
    """The means over the queries with a relevant item, NaN without any; and fields of a result.

    The fields are `queries`, `queries_without_match` and `per_query`. `terms_of(ranks, first,
    counts)` gives the terms of queries whose relevant items have
    `ranks[first[i] : first[i] + counts[i]]`.
    """
    terms = {name: np.full(len(task.query_order), np.nan) for name in names}
    for low, high, start, ranks in blocks:
        counts = np.diff(start)
        matched = counts > 0
        if matched.any():
            rows = task.query_order[low:high][matched]
            known = terms_of(ranks, start[:-1][matched], counts[matched])
            for name, values in terms.items():
                values[rows] = known[name]
    kept = np.sort(task.query_order[task.counts > 0])
    means = {
        name: float(values[kept].mean()) if len(kept) else float("nan")
        for name, values in terms.items()
    }
    count = len(task.query_order)
    return means, {"queries": count, "queries_without_match": count - len(kept), "per_query": terms}


def _terms(
    ranks: Array, first: Array, counts: Array, *, ks: Sequence[int], size: int
) -> dict[str, Array]:
    """The formulas of `RetrievalResult`."""
    nearest = ranks[first]
    terms: dict[str, Array] = {f"recall@{k}": nearest < k for k in ks}
    for k in ks:
        # Ranks ascend, so the first k positives are enough.
        head = first[:, None] + np.minimum(np.arange(min(k, counts.max())), counts[:, None] - 1)
        exists = np.arange(head.shape[1]) < counts[:, None]
        terms[f"precision@{k}"] = ((ranks[head] < k) & exists).sum(1) / min(k, size)
    hit = ranks < np.repeat(counts, counts)
    terms["r_precision"] = np.add.reduceat(hit, first, dtype=np.int64) / counts
    # Precision of the list cut just after each relevant item.
    precision = np.arange(1.0, len(ranks) + 1)
    precision -= np.repeat(first, counts)
    precision /= ranks + 1.0
    terms["mAP"] = np.add.reduceat(precision, first) / counts
    precision *= hit
    terms["map@r"] = np.add.reduceat(precision, first) / counts
    terms["mrr"] = np.where(nearest == BEYOND, 0.0, 1 / (nearest + 1.0))
    return terms


def check_ks(ks: Sequence[int]) -> tuple[int, ...]:
    """Ranks to report, ascending and without duplicates, or an `InputError`."""
    try:
        values = list(ks)
    except TypeError:
        raise InputError("ks", repr(ks), "a list of whole numbers of at least 1") from None
    if not values:
        raise InputError("ks", "an empty list", "at least one whole number")
    return tuple(sorted({check_int("ks", k) for k in values}))
