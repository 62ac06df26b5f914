"""Compiled twins of torch functions that stand, readable, in the public packages; needs numba.

One file per kernel, each naming its twin. `_base.extras.compiled` finds this room; without
it, or without numba, the twins do the work with the same results.
"""

from uncollapse._kernels.frame import frame_rows, tangent
from uncollapse._kernels.mine import choose
from uncollapse._kernels.multi_similarity import similarity_after, similarity_before
from uncollapse._kernels.ranking import (
    SORTED_BELOW,
    RankedPoints,
    StripArrays,
    count_tile,
    own_squares,
    row_hashes,
    values_at_rank,
)
from uncollapse._kernels.triplets import class_distances, class_gradient, hinge_rows, triplet_charge

__all__ = [
    "SORTED_BELOW",
    "RankedPoints",
    "StripArrays",
    "choose",
    "class_distances",
    "class_gradient",
    "count_tile",
    "frame_rows",
    "hinge_rows",
    "own_squares",
    "row_hashes",
    "similarity_after",
    "similarity_before",
    "tangent",
    "triplet_charge",
    "values_at_rank",
]
