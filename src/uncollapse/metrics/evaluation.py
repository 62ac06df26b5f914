"""The one evaluator of embeddings with labels, behind training, commands, pages and papers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, as_rows, class_ids, label_array
from uncollapse._base.check import check_int
from uncollapse._base.extras import give_back_memory
from uncollapse._base.result import Card, Shown
from uncollapse.metrics.clusters import ClusteringResult, clustering
from uncollapse.metrics.ranking import sample_queries
from uncollapse.metrics.re_identification import ReidResult, reid
from uncollapse.metrics.retrieval_scores import RetrievalResult, retrieval

_MATCHES = 30_000_000  # relevant items of all queries that are ranked, at most: MAP@R, R-precision
_RANKED = 400_000_000  # items that all queries rank to the last, at most: mAP


@dataclass(frozen=True, repr=False)
class Scores(Shown):
    """Figures by name: `recall@1`, `map@r`, ..., with cameras `cmc@1`, `mAP`, `mINP`; and `nmi`.

    `ranked` has what each query adds, for intervals; `clustered` is by the names of the NMI.
    """

    values: dict[str, float]
    ranked: RetrievalResult | ReidResult
    clustered: Mapping[str, ClusteringResult] = field(default_factory=dict)

    def card(self) -> Card:
        """The figures."""
        return Card("Scores", shares=self.values)


def evaluate_rows(
    embeddings: ArrayLike,
    labels: ArrayLike,
    gallery: Any = None,
    gallery_labels: Any = None,
    *,
    cameras: tuple[ArrayLike, ArrayLike] | None = None,
    clusters: Sequence[int] = (),
    normalize: bool = False,
    max_rows: int | None = None,
    **search: Any,
) -> Scores:
    """Search by `retrieval`, or with `cameras` of both sides by `reid`, and `cluster_rows`.

    Each row searches all others, or the gallery. With `max_rows` only a sample of so many rows
    (`sample_queries`) searches and is clustered, and figures that would take minutes are left out
    (`affordable`): `max_rows=QUERIES` gives the figures of `uncollapse evaluate` and `uncollapse
    diagnose`. `search` are further settings of the search: `ks`, `rerank`, ...

    >>> rows, labels = [[0.0], [0.1], [9.0], [9.2]], ["a", "a", "b", "b"]
    >>> values = evaluate_rows(rows, labels, ks=(1,), clusters=(1,)).values
    >>> values["recall@1"], values["nmi"]
    (1.0, 1.0)
    """
    search["normalize"] = normalize
    ranked: RetrievalResult | ReidResult
    some, own_labels = embeddings, labels
    if max_rows is not None:
        check_int("max_rows", max_rows, 2)
        few = sample_queries(len(labels), max_rows)
        if cameras is None:
            own = labels if gallery_labels is None else gallery_labels
            search |= affordable(label_array(labels)[few], label_array(own), search)
        if len(few) < len(labels):
            some, own_labels = as_rows(embeddings)[few], label_array(labels)[few]
            if gallery is None:
                search["rows"] = few
            else:
                embeddings, labels = some, own_labels
    if cameras is None:
        ranked = retrieval(embeddings, labels, gallery, gallery_labels, **search)
    else:
        own, there = cameras
        ranked = reid(embeddings, labels, own, gallery, gallery_labels, there, **search)
    figures = ranked.to_dict()
    values = {name: float(figures[name]) for name in ranked.per_query}
    if clusters:
        give_back_memory()  # clustering would add to it
    clustered = cluster_rows(some, own_labels, clusters, normalize=normalize)
    nmi = {name: result.nmi for name, result in clustered.items()}
    return Scores(values | nmi, ranked, clustered)


def affordable(labels: Array, gallery_labels: Array, search: Mapping[str, Any]) -> dict[str, bool]:
    """`all_matches` and `full_map` of `retrieval`, as far as they take seconds and not minutes.

    What needs every relevant item is left out where classes have many thousands of rows.

    >>> affordable(np.zeros(5_000), np.zeros(100_000), {"full_map": True})
    {'all_matches': False, 'full_map': False}
    """
    names, sizes = np.unique(gallery_labels, return_counts=True)
    place = np.minimum(np.searchsorted(names, labels), len(names) - 1)
    matches = int(sizes[place][names[place] == labels].sum())
    every = matches <= _MATCHES
    whole = every and len(labels) * len(gallery_labels) <= _RANKED
    return {"all_matches": every, "full_map": bool(search.get("full_map")) and whole}


def sample_words(count: int, total: int) -> str:
    """How many of the rows a figure is of.

    >>> sample_words(9, 9), sample_words(5000, 49963)
    ('all 9 rows', 'a sample of 5,000 of 49,963 rows')
    """
    return f"all {total:,} rows" if count == total else f"a sample of {count:,} of {total:,} rows"


def fine_classes(labels: Array, fine_labels: Array) -> Array:
    """A number for each pair of a label and a fine label: those name a class inside a label only.

    >>> fine_classes(np.array(["a", "a", "b"]), np.array([0, 1, 0])).tolist()
    [0, 1, 2]
    """
    coarse, fine = (class_ids(values, None)[0] for values in (labels, fine_labels))
    return np.asarray(coarse * (fine.max() + 1) + fine)


def cluster_rows(
    embeddings: ArrayLike, labels: ArrayLike, clusters: Sequence[int], **settings: Any
) -> dict[str, ClusteringResult]:
    """`clustering` with these numbers of clusters per class: 1 as `nmi`, more as `nmi+`.

    At most one for every two rows, and at least one: with a cluster for each row all embeddings
    would score the same. `settings` are those of `clustering`.

    >>> rows = [[float(i)] for i in range(16)]
    >>> cluster_rows(rows, [0] * 8 + [1] * 8, [10])["nmi+"].clusters
    8
    """
    ids, classes = class_ids(labels, None)
    if isinstance(embeddings, Tensor) and not embeddings.is_meta:  # one copy for all
        embeddings = embeddings.detach().cpu()
    most = max(1, len(ids) // (2 * len(classes)))
    return {
        "nmi" if times == 1 else "nmi+": clustering(
            embeddings, ids, multiplier=min(times, most), **settings
        )
        for times in clusters
    }
