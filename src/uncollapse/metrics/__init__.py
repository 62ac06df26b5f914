"""How good an embedding is: retrieval, clustering, re-ID, fine classes, modes, confidence."""

from uncollapse.metrics.clustering import (
    ClusteringResult,
    clustering,
    normalized_mutual_information,
    pairwise_f1,
)
from uncollapse.metrics.kmeans import KMeansResult, kmeans
from uncollapse.metrics.reid import ReidResult, reid
from uncollapse.metrics.retrieval import RetrievalResult, retrieval

__all__ = [
    "ClusteringResult",
    "KMeansResult",
    "ReidResult",
    "RetrievalResult",
    "clustering",
    "kmeans",
    "normalized_mutual_information",
    "pairwise_f1",
    "reid",
    "retrieval",
]
