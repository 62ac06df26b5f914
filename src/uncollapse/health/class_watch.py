"""Whether the classes of a batch look like points, in O(N d): cheap enough for every batch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, class_ids

__all__ = ["tight_share"]

_MOST = 0.75  # of a class's pairs, as in the tightness of a full measure


def tight_share(z: Tensor, labels: ArrayLike, tightness: float) -> float:
    """Share of the classes whose pairs mostly lie within `tightness` of the distance between them.

    Of each class only pairs of rows that follow each other are looked at, and between classes one
    pair a row: an estimate of what `ClassHealth.tightness` says of all pairs. 0.0 where no two rows
    share a class, or all do.

    >>> z = torch.tensor([[0.0], [0.1], [9.0], [9.1], [20.0], [24.0]])
    >>> round(tight_share(z, [0, 0, 1, 1, 2, 2], tightness=0.05), 2)
    0.67
    """
    ids, classes = class_ids(labels, len(z))
    order = np.argsort(ids, kind="stable")
    ids, half = ids[order], len(ids) // 2
    rows = z.detach()[torch.from_numpy(order).to(z.device)].double()
    inside = _lengths(rows[1:] - rows[:-1])
    across = _lengths(rows - rows.roll(-half, 0))[ids != np.roll(ids, -half)]
    same = ids[1:] == ids[:-1]
    if not len(across) or not same.any():
        return 0.0
    pairs = np.bincount(ids[1:][same], minlength=len(classes))
    near = inside[same] <= tightness * np.median(across)
    tight = np.bincount(ids[1:][same], near, minlength=len(classes)) >= _MOST * pairs
    return float(tight[pairs > 0].mean())


def _lengths(rows: Tensor) -> Array:
    found: Array = torch.linalg.vector_norm(rows, dim=1).cpu().numpy()
    return found
