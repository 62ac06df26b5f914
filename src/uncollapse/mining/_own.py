"""Distances inside large classes: products about each class's own centre.

About the centre of the batch a tight class far from the others would lose its digits.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.classes import ClassLayout
from uncollapse.mining._frame import Frame

__all__ = ["large_class_squares"]


def large_class_squares(
    frame: Frame, layout: ClassLayout, anchors: Tensor, own: Tensor
) -> tuple[Tensor, Tensor]:
    """Squared distances of the anchors to `own`, and a bound `[b, 1]` of their error."""
    device, dtype = anchors.device, frame.centred.dtype
    squares = torch.full(own.shape, float("inf"), dtype=dtype, device=device)
    error = squares.new_zeros(len(squares), 1)
    ids = layout.ids[anchors.cpu().numpy()]
    for c in np.unique(ids).tolist():
        rows = torch.from_numpy(np.flatnonzero(ids == c)).to(device)
        members = torch.from_numpy(layout.members(c)).to(device)
        w = frame.given[members].to(dtype) / frame.scale
        w -= w[0].clone()  # as for the batch: equal rows are to be exactly 0
        w -= w.mean(dim=0)
        norm = (w * w).sum(dim=1)
        mine = torch.searchsorted(members, anchors[rows])
        full = torch.addmm(norm, w[mine], w.T, alpha=-2.0) + norm[mine][:, None]
        column = torch.arange(len(members) - 1, device=device)
        skip = column + (column >= mine[:, None]).long()  # `own` leaves the anchor out
        squares[rows, : len(members) - 1] = full.gather(1, skip).clamp_min(0.0)
        error[rows] = torch.finfo(dtype).eps * (4 * w.shape[1] ** 0.5 + 20) * norm.max()
    return squares, error
