"""The one evaluator of embeddings with labels, behind training, commands, pages and papers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from uncollapse._base.arrays import ArrayLike
from uncollapse.metrics.clusters import ClusteringResult, clustering, fitting_multiplier
from uncollapse.metrics.re_identification import ReidResult, reid
from uncollapse.metrics.retrieval_scores import RetrievalResult, retrieval


class Scores(NamedTuple):
    """Figures by name: `recall@1`, `map@r`, ..., with cameras `cmc@1`, `mAP`, `mINP`; and `nmi`.

    `ranked` has what each query adds, for intervals; None where nothing was searched. `clustered`
    are the clusterings, by the names of their figures.
    """

    values: dict[str, float]
    ranked: RetrievalResult | ReidResult | None
    clustered: dict[str, ClusteringResult]


def evaluate_rows(
    embeddings: ArrayLike, labels: ArrayLike, gallery: Any = None, gallery_labels: Any = None,
    *, cameras: tuple[ArrayLike, ArrayLike] | None = None, ks: Sequence[int] = (1, 2, 4, 8),
    clusters: Sequence[int] = (), restarts: int = 3, normalize: bool = False, **search: Any,
) -> Scores:  # fmt: skip
    """Search by `retrieval`, or with `cameras` of both sides by `reid`, and cluster the rows.

    Each row searches all others, or the gallery; without `ks` nothing is searched. `clusters` are
    how many clusters per class k-means gets: 1 for `nmi`, more for `nmi+` (EPS Table 2), though at
    most one for every two rows. `search` are further settings of the search: `rerank`, `rows`, ...

    >>> rows, labels = [[0.0], [0.1], [9.0], [9.2]], ["a", "a", "b", "b"]
    >>> values = evaluate_rows(rows, labels, ks=(1,), clusters=(1,)).values
    >>> values["recall@1"], values["nmi"]
    (1.0, 1.0)
    """
    ranked: RetrievalResult | ReidResult | None = None
    own, others = (embeddings, labels), (gallery, gallery_labels)
    search |= {"ks": ks, "normalize": normalize}
    if ks and cameras is not None:
        ranked = reid(*own, cameras[0], *others, cameras[1], **search)
    elif ks:
        ranked = retrieval(*own, *others, **search)
    values, clustered = {}, {}
    if ranked is not None:
        values = {name: float(ranked.to_dict()[name]) for name in ranked.per_query}
    for times in clusters:
        name, many = "nmi" if times == 1 else "nmi+", fitting_multiplier(labels, times)
        clustered[name] = clustering(
            embeddings, labels, multiplier=many, restarts=restarts, normalize=normalize
        )
        values[name] = float(clustered[name].nmi)
    return Scores(values, ranked, clustered)
