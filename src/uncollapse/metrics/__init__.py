"""How good an embedding is: retrieval, clustering, re-ID, fine classes, modes, confidence."""

from uncollapse.metrics.centroids import KMeansResult, kmeans
from uncollapse.metrics.cluster_scores import (
    ClusteringResult,
    clustering,
    normalized_mutual_information,
    pairwise_f1,
)
from uncollapse.metrics.fine import FineResult, fine_evaluation
from uncollapse.metrics.modes import ModesResult, modes_per_class
from uncollapse.metrics.re_identification import ReidResult, reid
from uncollapse.metrics.retrieval_result import RetrievalResult
from uncollapse.metrics.retrieval_scores import retrieval
from uncollapse.metrics.uncertainty import (
    Interval,
    SeedComparison,
    SeedSummary,
    compare_seeds,
    confidence,
    over_seeds,
)

__all__ = [
    "ClusteringResult",
    "FineResult",
    "Interval",
    "KMeansResult",
    "ModesResult",
    "ReidResult",
    "RetrievalResult",
    "SeedComparison",
    "SeedSummary",
    "clustering",
    "compare_seeds",
    "confidence",
    "fine_evaluation",
    "kmeans",
    "modes_per_class",
    "normalized_mutual_information",
    "over_seeds",
    "pairwise_f1",
    "reid",
    "retrieval",
]
