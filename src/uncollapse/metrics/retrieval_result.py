"""What a ranking is worth: means over the queries, and the terms they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse.metrics._terms import means
from uncollapse.metrics.result_table import Result, text_table

__all__ = ["RetrievalResult"]


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
