"""Figures of scale, cheap enough for every batch: O(N d) and one small product."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from uncollapse._base.arrays import points
from uncollapse.distances import binary_scale, working_dtype
from uncollapse.geometry import diameter
from uncollapse.health.records import Norms

__all__ = ["row_norms", "scale_figures", "spread"]

_SAFE = (1e-150, 1e150)  # lengths whose squares float64 holds
_CHUNK = 1 << 16  # rows that are float64 at a time
_ROWS = 256  # rows of a batch that its diameter is taken of


def scale_figures(z: Tensor) -> dict[str, Any]:
    """Those fields of `Health` that are about scale; the diameter is that of at most 256 rows.

    >>> scale_figures(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))["diameter"]
    5.0
    """
    x = points(z)
    norms = row_norms(x)
    few = x[:: -(-len(x) // _ROWS)]
    return {
        "n": len(x),
        "diameter": diameter(few),
        "spread": spread(x),
        "centre_norm": float(row_norms(x.mean(0, keepdim=True, dtype=working_dtype(x)))),
        "norms": Norms.of(norms),
        "resolution": torch.finfo(z.dtype).eps * float(norms.max()),
    }


def row_norms(x: Tensor) -> Tensor:
    """Lengths of the rows, in the working dtype; also of rows whose squares it does not hold.

    >>> row_norms(torch.tensor([[3e300, 4e300]], dtype=torch.float64)).tolist()
    [5e+300]
    """
    norms: Tensor = torch.linalg.vector_norm(x, dim=1, dtype=working_dtype(x))
    largest = float(norms.max())
    if _SAFE[0] < largest < _SAFE[1] or not bool(torch.isfinite(x).all()):
        return norms
    scale = binary_scale(float(x.abs().max()))
    lengths: Tensor = torch.linalg.vector_norm(x / scale, dim=1, dtype=working_dtype(x)) * scale
    return lengths


def spread(x: Tensor) -> float:
    """Root mean square distance of two rows, in O(N d): sqrt(2N/(N - 1)) times the deviation.

    >>> spread(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    5.0
    """
    if len(x) < 2:
        return 0.0
    wide, first = working_dtype(x), x[:1].detach().to(working_dtype(x))
    if len(x) <= _CHUNK:  # a batch: its differences are taken once
        apart = x.detach().to(wide) - first
        largest = float(torch.linalg.vector_norm(apart, math.inf))
        if largest == 0.0:
            return 0.0
        squares = ((apart - apart.mean(0)) / largest).square_().sum()
        return largest * math.sqrt(2 * float(squares) / (len(x) - 1))
    chunks = torch.split(x.detach(), _CHUNK)
    # About the first row: equal rows give exact zeros, which a rounded mean does not.
    mean = sum((chunk.to(wide) - first).sum(0) for chunk in chunks) / len(x)
    largest = max(float((chunk.to(wide) - first).abs().max()) for chunk in chunks)
    if largest == 0.0:
        return 0.0
    several = (((chunk.to(wide) - first - mean) / largest).square().sum() for chunk in chunks)
    return largest * math.sqrt(2 * float(sum(several)) / (len(x) - 1))
