"""Figures of collapse that need no verdict: rank, neural collapse, thickness bracket."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from uncollapse.geometry import Thickness, thickness
from uncollapse.metrics import cdnv, effective_rank, nc1, principal_axes
from uncollapse.metrics.principal import Spectrum, spectrum

__all__ = [
    "Spectrum",
    "cdnv",
    "effective_rank",
    "nc1",
    "principal_axes",
    "spectrum",
    "thickness_bracket",
]

_EXACT_DIM = 3  # up to here the smallest width is found exactly, and quickly
_EXACT_ROWS = 2048


def thickness_bracket(x: Tensor, found: Spectrum) -> Thickness:
    """Bracket of the smallest width, cheap in any dimension: HNM (9a).

    Exact up to three dimensions and 2048 rows, and when the set is flat. Otherwise from the
    principal axes: below 2·sqrt(λ_min) of the covariance, above the width along the flattest axis.

    `found` is the spectrum of some or all of the rows: a subset is no wider than the set.
    """
    width = x.shape[1]
    if len(x) <= width:
        return Thickness(0.0, 0.0, True, np.eye(1, width)[0])
    if width <= _EXACT_DIM and len(x) <= _EXACT_ROWS:
        return thickness(x)
    if found.axes is None:
        return Thickness(0.0, math.inf, False, np.eye(1, width)[0])
    lower = 2 * float(found.values[-1]) / math.sqrt(found.rows) * (1 - 1e-6)
    direction = found.axes[:, -1]
    towards = torch.from_numpy(np.ascontiguousarray(direction))
    first = x[0].double()
    along = torch.cat([(chunk.double() - first) @ towards for chunk in torch.split(x, 1 << 16)])
    upper = float(along.max() - along.min())
    return Thickness(min(lower, upper), upper, False, direction)
