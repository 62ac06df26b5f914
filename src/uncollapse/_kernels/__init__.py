"""Compiled twins of torch functions that stand, readable, in the public packages; needs numba.

One file per kernel, each naming its twin. `_base.extras.compiled` finds this room; without
it, or without numba, the twins do the work with the same results.
"""

from uncollapse._kernels.frame import frame_rows, tangent
from uncollapse._kernels.mine import choose
from uncollapse._kernels.multi_similarity import similarity_after, similarity_before
from uncollapse._kernels.ranking import (
    SORTED_BELOW,
    CountArrays,
    RankedPoints,
    count_tile,
    own_squares,
)
from uncollapse._kernels.triplets import class_distances, class_gradient, hinge_rows, triplet_charge

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
