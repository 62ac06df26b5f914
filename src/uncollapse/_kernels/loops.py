"""How the kernels are compiled, and the two inner loops they share."""

from __future__ import annotations

import numba

from uncollapse._base.arrays import Array

__all__ = ["add_force", "fast", "square", "unfused"]


# Sums may be reordered, and there are no NaNs; infinities keep their meaning.
fast = numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz", "arcp", "nnan"})
# Products are not fused with the difference that follows: x * f - x * f must be exactly 0.
unfused = numba.njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})


@fast
def square(x: Array, y: Array) -> float:
    """|x - y|²."""
    total = 0.0
    for k in range(len(x)):
        total += (x[k] - y[k]) ** 2
    return total


@fast
def add_force(gradient: Array, rows: Array, i: int, j: int, slope: float) -> None:
    """Pull row i of the gradient towards, and row j away from, x_i - x_j."""
    for k in range(rows.shape[1]):
        force = slope * (rows[i, k] - rows[j, k])
        gradient[i, k] += force
        gradient[j, k] -= force
