"""A matrix plus its transpose, in place and in cache."""

from __future__ import annotations

from uncollapse.losses._compiled._base import Array, fast

__all__ = ["symmetrise"]

_TILE = 32


@fast
def symmetrise(a: Array) -> None:
    """a <- a + aᵀ."""
    n = len(a)
    for top in range(0, n, _TILE):
        for left in range(top, n, _TILE):
            for i in range(top, min(n, top + _TILE)):
                for j in range(max(left, i), min(n, left + _TILE)):
                    both = a[i, j] + a[j, i]
                    a[i, j] = both
                    a[j, i] = both
