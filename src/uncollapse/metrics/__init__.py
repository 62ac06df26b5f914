"""How good an embedding is: retrieval, clustering, re-ID, verification, modes, confidence."""

from uncollapse.metrics.centroids import KMeansResult, kmeans
from uncollapse.metrics.cluster_scores import (
    ClusteringResult,
    clustering,
    normalized_mutual_information,
    pairwise_f1,
)
from uncollapse.metrics.collapse_figures import (
    NC2,
    Anisotropy,
    PiRatio,
    alignment,
    alpha_req,
    anisotropy,
    cdnv,
    effective_rank,
    field_figures,
    lidar,
    nc1,
    nc2,
    nc3,
    nc4,
    pcf,
    pi_ratio,
    principal_axes,
    rankme,
    rho_spectrum,
    uniformity,
)
from uncollapse.metrics.fine import FineResult, fine_evaluation
from uncollapse.metrics.intervals import (
    Interval,
    SeedComparison,
    SeedSummary,
    compare_seeds,
    confidence,
    over_seeds,
)
from uncollapse.metrics.modes import ModesResult, modes_per_class
from uncollapse.metrics.re_identification import ReidResult, reid
from uncollapse.metrics.re_ranking import ReRanked, ReRanking, rerank
from uncollapse.metrics.retrieval_scores import RetrievalResult, retrieval
from uncollapse.metrics.suspects import SuspectLabels, suspect_labels
from uncollapse.metrics.verification_scores import RocCurve, VerificationResult, verification

__all__ = [
    "NC2",
    "Anisotropy",
    "ClusteringResult",
    "FineResult",
    "Interval",
    "KMeansResult",
    "ModesResult",
    "PiRatio",
    "ReRanked",
    "ReRanking",
    "ReidResult",
    "RetrievalResult",
    "RocCurve",
    "SeedComparison",
    "SeedSummary",
    "SuspectLabels",
    "VerificationResult",
    "alignment",
    "alpha_req",
    "anisotropy",
    "cdnv",
    "clustering",
    "compare_seeds",
    "confidence",
    "effective_rank",
    "field_figures",
    "fine_evaluation",
    "kmeans",
    "lidar",
    "modes_per_class",
    "nc1",
    "nc2",
    "nc3",
    "nc4",
    "normalized_mutual_information",
    "over_seeds",
    "pairwise_f1",
    "pcf",
    "pi_ratio",
    "principal_axes",
    "rankme",
    "reid",
    "rerank",
    "retrieval",
    "rho_spectrum",
    "suspect_labels",
    "uniformity",
    "verification",
]
