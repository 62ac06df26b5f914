"""How good an embedding is: retrieval, clustering, re-ID, verification, modes, confidence."""

from uncollapse.metrics.clusters import (
    ClusteringResult,
    clustering,
    kmeans,
    normalized_mutual_information,
    pairwise_f1,
)
from uncollapse.metrics.collapse import (
    alignment,
    anisotropy,
    cdnv,
    effective_rank,
    modes_per_class,
    nc1,
    principal_axes,
    rankme,
    uniformity,
)
from uncollapse.metrics.comparison import compare_embeddings
from uncollapse.metrics.evaluation import Scores, cluster_rows, evaluate_rows
from uncollapse.metrics.intervals import Interval, compare_seeds, confidence, over_seeds
from uncollapse.metrics.re_identification import ReidResult, reid
from uncollapse.metrics.repair import fit_repair
from uncollapse.metrics.reranking import ReRanking, rerank
from uncollapse.metrics.retrieval_scores import RetrievalResult, retrieval
from uncollapse.metrics.spoiled_rows import FAR_SHARE, FEW_INVALID, SpoiledRows, find_spoiled
from uncollapse.metrics.suspects import SuspectLabels, suspect_labels
from uncollapse.metrics.verification_scores import VerificationResult, verification

__all__ = [
    "FAR_SHARE",
    "FEW_INVALID",
    "ClusteringResult",
    "Interval",
    "ReRanking",
    "ReidResult",
    "RetrievalResult",
    "Scores",
    "SpoiledRows",
    "SuspectLabels",
    "VerificationResult",
    "alignment",
    "anisotropy",
    "cdnv",
    "cluster_rows",
    "clustering",
    "compare_embeddings",
    "compare_seeds",
    "confidence",
    "effective_rank",
    "evaluate_rows",
    "find_spoiled",
    "fit_repair",
    "kmeans",
    "modes_per_class",
    "nc1",
    "normalized_mutual_information",
    "over_seeds",
    "pairwise_f1",
    "principal_axes",
    "rankme",
    "reid",
    "rerank",
    "retrieval",
    "suspect_labels",
    "uniformity",
    "verification",
]
