"""Which code runs between the products: compiled where numba is installed, torch everywhere."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from uncollapse._base.extras import kernels

__all__ = ["compiled"]

_FROM = 128  # rows from which loading the compiled kernels is worth it


def compiled(rows: Tensor, engine: str = "auto") -> Any:
    """The module of compiled kernels, or None: not asked for, not on a CPU, or not installed.

    `engine` is "torch", "numba", or "auto": numba for batches that are not small.
    """
    small = len(rows) < _FROM and engine == "auto"
    return None if engine == "torch" or small or rows.device.type != "cpu" else kernels()
