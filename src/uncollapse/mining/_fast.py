"""numba's kernels where they can be had, else None."""

from __future__ import annotations

from types import ModuleType

__all__ = ["kernels"]

kernels: ModuleType | None
try:
    from uncollapse import _kernels as kernels
except (ImportError, RuntimeError):  # not installed, or nowhere to keep what it compiles
    kernels = None
