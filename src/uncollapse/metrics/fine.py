"""One embedding against its training labels and the hidden finer ones: EPS Tables 1, 3, 4."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from uncollapse._base.arrays import ArrayLike, class_ids, points
from uncollapse._base.progress import ProgressOption
from uncollapse.metrics.cluster_scores import ClusteringResult, clustering
from uncollapse.metrics.collapse_figures import ModesResult, modes_per_class
from uncollapse.metrics.result_table import Result, text_table
from uncollapse.metrics.retrieval_scores import RetrievalResult, retrieval

__all__ = ["FineResult", "fine_evaluation"]


@dataclass(frozen=True)
class FineResult(Result):
    """The same scores against `labels` (coarse) and `fine_labels` (fine), and the modes kept."""

    coarse: RetrievalResult
    fine: RetrievalResult
    modes: ModesResult
    coarse_clustering: ClusteringResult | None = None
    fine_clustering: ClusteringResult | None = None

    def to_dict(self) -> dict[str, Any]:
        """Every number twice, `coarse_...` and `fine_...`, and those of the modes."""
        numbers = {f"coarse_{name}": value for name, value in self._scores("coarse").items()}
        numbers |= {f"fine_{name}": value for name, value in self._scores("fine").items()}
        return numbers | self.modes.to_dict()

    def __str__(self) -> str:
        coarse, fine = self._scores("coarse"), self._scores("fine")
        rows = [(name, value, fine[name]) for name, value in coarse.items()]
        table = text_table(rows, header=("", "labels", "fine_labels"))
        return table + "\n\n" + text_table(list(self.modes.to_dict().items()))

    def _scores(self, which: str) -> dict[str, Any]:
        scores: dict[str, Any] = getattr(self, which).to_dict()
        clusters: ClusteringResult | None = getattr(self, f"{which}_clustering")
        return scores | (clusters.to_dict() if clusters else {})


def fine_evaluation(
    x: ArrayLike,
    labels: ArrayLike,
    fine_labels: ArrayLike,
    *,
    ks: Sequence[int] = (1, 2, 4, 8),
    cluster: bool = False,
    multiplier: int = 1,
    restarts: int = 3,
    normalize: bool = False,
    ties: str = "pessimistic",
    max_memory: int | str = "256MB",
    progress: ProgressOption = None,
    seed: int = 0,
) -> FineResult:
    """Score retrieval (and with `cluster` also k-means) against both label sets, and count modes.

    A collapsed class scores well on `labels` and badly on `fine_labels`. A fine label names a fine
    class inside its class only: the letter "01" of two alphabets is two letters. `multiplier`
    gives NMI+ for both, each relative to its own number of classes.

    >>> x = [[0.0], [0.1], [5.0], [5.1], [20.0], [20.1]]
    >>> result = fine_evaluation(x, [0, 0, 0, 0, 1, 1], ["a", "a", "b", "b", "c", "c"], ks=(1,))
    >>> result.coarse.recall[1], result.fine.recall[1], result.modes.modes.tolist()
    (1.0, 1.0, [2.0, 1.0])
    """
    n = len(points(x))
    ids, _ = class_ids(labels, n)
    inner, kinds = class_ids(fine_labels, n, "fine_labels")
    pairs = ids * len(kinds) + inner
    coarse, fine = (
        retrieval(
            x, classes, ks=ks, ties=ties, max_memory=max_memory, progress=progress,
            normalize=normalize,
        )
        for classes in (ids, pairs)
    )  # fmt: skip
    options: dict[str, Any] = {"multiplier": multiplier, "restarts": restarts, "seed": seed}
    clusters = [
        clustering(x, classes, normalize=normalize, **options) if cluster else None
        for classes in (ids, pairs)
    ]
    modes = modes_per_class(x, labels, fine_labels, normalize=normalize)
    return FineResult(coarse, fine, modes, *clusters)
