"""The one evaluator of embeddings with labels, behind training, commands, pages and papers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from uncollapse._base.arrays import ArrayLike, class_ids
from uncollapse.metrics.clusters import ClusteringResult, clustering
from uncollapse.metrics.re_identification import ReidResult, reid
from uncollapse.metrics.result import Card, Shown
from uncollapse.metrics.retrieval_scores import RetrievalResult, retrieval


@dataclass(frozen=True, repr=False)
class Scores(Shown):
    """Figures by name: `recall@1`, `map@r`, ..., with cameras `cmc@1`, `mAP`, `mINP`; and `nmi`.

    `ranked` has what each query adds, for intervals.
    """

    values: dict[str, float]
    ranked: RetrievalResult | ReidResult

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
    **search: Any,
) -> Scores:
    """Search by `retrieval`, or with `cameras` of both sides by `reid`, and `cluster_rows`.

    Each row searches all others, or the gallery. `search` are further settings of the search: `ks`,
    `rerank`, `rows`, ...

    >>> rows, labels = [[0.0], [0.1], [9.0], [9.2]], ["a", "a", "b", "b"]
    >>> values = evaluate_rows(rows, labels, ks=(1,), clusters=(1,)).values
    >>> values["recall@1"], values["nmi"]
    (1.0, 1.0)
    """
    search["normalize"] = normalize
    ranked: RetrievalResult | ReidResult
    if cameras is None:
        ranked = retrieval(embeddings, labels, gallery, gallery_labels, **search)
    else:
        own, there = cameras
        ranked = reid(embeddings, labels, own, gallery, gallery_labels, there, **search)
    figures = ranked.to_dict()
    values = {name: float(figures[name]) for name in ranked.per_query}
    clustered = cluster_rows(embeddings, labels, clusters, normalize=normalize)
    return Scores(values | {name: result.nmi for name, result in clustered.items()}, ranked)


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
