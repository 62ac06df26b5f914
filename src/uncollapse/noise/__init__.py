"""The noise theory of class collapse: EPS §4, appendices A and B."""

from uncollapse.noise.estimate import NoiseEstimate, estimate_noise
from uncollapse.noise.expected import (
    expected_contrastive,
    expected_eps_margin,
    expected_eps_triplet,
    expected_margin,
    expected_triplet,
)
from uncollapse.noise.minimisers import Minimum, minimise
from uncollapse.noise.model import NoiseModel, blobs, simplex
from uncollapse.noise.theorems import (
    ClaimCheck,
    Verdict,
    check_claims_eps,
    claim_3_gap,
    claim_4_gap,
    margin_bound,
    mode_gain,
    smallest_m,
    theorem_1,
    theorem_2,
    triplet_bound,
    zero_margin_boundaries,
    zero_triplet_margin,
)

__all__ = [
    "ClaimCheck",
    "Minimum",
    "NoiseEstimate",
    "NoiseModel",
    "Verdict",
    "blobs",
    "check_claims_eps",
    "claim_3_gap",
    "claim_4_gap",
    "estimate_noise",
    "expected_contrastive",
    "expected_eps_margin",
    "expected_eps_triplet",
    "expected_margin",
    "expected_triplet",
    "margin_bound",
    "minimise",
    "mode_gain",
    "simplex",
    "smallest_m",
    "theorem_1",
    "theorem_2",
    "triplet_bound",
    "zero_margin_boundaries",
    "zero_triplet_margin",
]
