"""The noise theory of class collapse: EPS §4, appendices A and B."""

from uncollapse.noise.estimate import NoiseEstimate, estimate_noise
from uncollapse.noise.expected import Minimum, expected_loss, minimise
from uncollapse.noise.model import NoiseModel, blobs, simplex
from uncollapse.noise.theorems import (
    ClaimCheck,
    check_claims_eps,
    margin_bound,
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
    "blobs",
    "check_claims_eps",
    "estimate_noise",
    "expected_loss",
    "margin_bound",
    "minimise",
    "simplex",
    "smallest_m",
    "theorem_1",
    "theorem_2",
    "triplet_bound",
    "zero_margin_boundaries",
    "zero_triplet_margin",
]
