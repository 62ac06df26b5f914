"""Compiled twins of torch functions in the public packages; needs numba.

Each kernel names its twin. `_base.extras.compiled` finds this package; without it, or without
numba, the twins do the work with the same results.
"""

from uncollapse._kernels.multi_similarity import similarity_after, similarity_before
from uncollapse._kernels.ranking import (
    SORTED_BELOW,
    CountArrays,
    RankedPoints,
    count_tile,
    own_squares,
)
from uncollapse._kernels.triplets import (
    choose,
    class_distances,
    class_gradient,
    frame_rows,
    hinge_rows,
    tangent,
    triplet_charge,
)

__all__ = [
    "SORTED_BELOW",
    "CountArrays",
    "RankedPoints",
    "choose",
    "class_distances",
    "class_gradient",
    "count_tile",
    "frame_rows",
    "hinge_rows",
    "own_squares",
    "similarity_after",
    "similarity_before",
    "tangent",
    "triplet_charge",
]
