"""How good an embedding is: retrieval, clustering, re-ID, verification, modes, confidence."""

from uncollapse.metrics.centroids import KMeansResult, kmeans
from uncollapse.metrics.class_density import PiRatio, pi_ratio
from uncollapse.metrics.cluster_scores import (
    ClusteringResult,
    clustering,
    normalized_mutual_information,
    pairwise_f1,
)
from uncollapse.metrics.discriminant_rank import lidar
from uncollapse.metrics.fine import FineResult, fine_evaluation
from uncollapse.metrics.hypersphere import Anisotropy, alignment, anisotropy, uniformity
from uncollapse.metrics.modes import ModesResult, modes_per_class
from uncollapse.metrics.neural_collapse import NC2, cdnv, nc1, nc2, nc3, nc4
from uncollapse.metrics.principal import effective_rank, principal_axes
from uncollapse.metrics.published import field_figures
from uncollapse.metrics.re_identification import ReidResult, reid
from uncollapse.metrics.re_ranking import ReRanked, ReRanking, rerank
from uncollapse.metrics.retrieval_result import RetrievalResult
from uncollapse.metrics.retrieval_scores import retrieval
from uncollapse.metrics.spectral import alpha_req, pcf, rankme, rho_spectrum
from uncollapse.metrics.suspects import SuspectLabels, suspect_labels
from uncollapse.metrics.uncertainty import (
    Interval,
    SeedComparison,
    SeedSummary,
    compare_seeds,
    confidence,
    over_seeds,
)
from uncollapse.metrics.verification_result import RocCurve, VerificationResult
from uncollapse.metrics.verification_scores import verification

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
