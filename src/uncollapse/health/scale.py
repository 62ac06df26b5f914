"""Figures of scale, cheap enough for every batch: O(N d) and one small product."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from uncollapse._base.arrays import points
from uncollapse.distances import working_dtype
from uncollapse.geometry import diameter
from uncollapse.health.records import Norms

__all__ = ["scale_figures", "spread"]

_CHUNK = 1 << 16  # rows that are float64 at a time
_ROWS = 256  # rows of a batch that its diameter is taken of


def scale_figures(z: Tensor) -> dict[str, Any]:
    """Those fields of `Health` that are about scale; the diameter is that of at most 256 rows.

    >>> scale_figures(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))["diameter"]
    5.0
    """
    x = points(z)
    norms = torch.linalg.vector_norm(x, dim=1, dtype=working_dtype(x))
    few = x[:: -(-len(x) // _ROWS)]
    return {
        "n": len(x),
        "diameter": diameter(few),
        "spread": spread(x),
        "centre_norm": float(torch.linalg.vector_norm(x.mean(0, dtype=working_dtype(x)))),
        "norms": Norms.of(norms),
        "resolution": torch.finfo(z.dtype).eps * float(norms.max()),
    }


def spread(x: Tensor) -> float:
    """Root mean square distance of two rows, in O(N d): sqrt(2N/(N - 1)) times the deviation.

    >>> spread(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    5.0
    """
    if len(x) < 2:
        return 0.0
    wide, first = working_dtype(x), x[:1].detach().to(working_dtype(x))
    chunks = torch.split(x.detach(), _CHUNK)
    # About the first row: equal rows give exact zeros, which a rounded mean does not.
    mean = sum((chunk.to(wide) - first).sum(0) for chunk in chunks) / len(x)
    largest = max(float((chunk.to(wide) - first).abs().max()) for chunk in chunks)
    if largest == 0.0:
        return 0.0
    squares = (((chunk.to(wide) - first - mean) / largest).square().sum() for chunk in chunks)
    return largest * math.sqrt(2 * float(sum(squares)) / (len(x) - 1))
