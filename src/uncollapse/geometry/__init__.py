"""Mathematics of labelled point sets: the quantities of the hard-negative-mining paper (HNM)."""

from uncollapse.geometry.claims import Claim, check_claims
from uncollapse.geometry.diameters import (
    Thickness,
    class_diameters,
    diameter,
    diameter_lower_bound,
    iap_constant,
    thickness,
)
from uncollapse.geometry.isometry import (
    Isometry,
    best_isometry,
    hausdorff,
    hausdorff_like,
    isometric_error,
    set_distance,
)
from uncollapse.geometry.nearest import (
    NearestSeparated,
    gradient_descent_separated,
    nearest_separated,
)
from uncollapse.geometry.triplet_separation import (
    Separation,
    hard_mined_loss,
    is_triplet_separated,
    separation,
)

__all__ = [
    "Claim",
    "Isometry",
    "NearestSeparated",
    "Separation",
    "Thickness",
    "best_isometry",
    "check_claims",
    "class_diameters",
    "diameter",
    "diameter_lower_bound",
    "gradient_descent_separated",
    "hard_mined_loss",
    "hausdorff",
    "hausdorff_like",
    "iap_constant",
    "is_triplet_separated",
    "isometric_error",
    "nearest_separated",
    "separation",
    "set_distance",
    "thickness",
]
