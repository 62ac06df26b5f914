"""What happens to a block between two products, compiled; needs numba (extra `fast`).

Same results as the torch code beside it; each module says which.
"""

from uncollapse.losses._compiled.frame import frame_rows, tangent
from uncollapse.losses._compiled.hardest import hardest_rows
from uncollapse.losses._compiled.hinge import hinge_rows
from uncollapse.losses._compiled.pairs import class_distances, class_gradient, triplet_charge
from uncollapse.losses._compiled.similarity import similarity_after, similarity_before

__all__ = [
    "class_distances",
    "class_gradient",
    "frame_rows",
    "hardest_rows",
    "hinge_rows",
    "similarity_after",
    "similarity_before",
    "tangent",
    "triplet_charge",
]
