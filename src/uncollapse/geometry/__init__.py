"""Mathematics of labelled point sets: the quantities of the hard-negative-mining paper (HNM)."""

from uncollapse.geometry.bound import diameter_lower_bound
from uncollapse.geometry.claims import Claim, check_claims
from uncollapse.geometry.descent import gradient_descent_separated
from uncollapse.geometry.diameters import class_diameters, diameter
from uncollapse.geometry.isometry import (
    Isometry,
    best_isometry,
    isometric_error,
    near_isometry_epsilon,
)
from uncollapse.geometry.nearest import NearestSeparated, nearest_separated
from uncollapse.geometry.set_distances import (
    hausdorff,
    hausdorff_like,
    set_distance,
    sup_displacement,
)
from uncollapse.geometry.triplet_separation import (
    Separation,
    hard_mined_loss,
    is_triplet_separated,
    separation,
)
from uncollapse.geometry.widths import Thickness, iap_constant, thickness

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
    "near_isometry_epsilon",
    "nearest_separated",
    "separation",
    "set_distance",
    "sup_displacement",
    "thickness",
]
