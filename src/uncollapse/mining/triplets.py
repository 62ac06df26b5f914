"""Triplets of row indices, and the index tuples of pytorch-metric-learning they stand for."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

__all__ = ["Triplets"]


class Triplets(NamedTuple):
    """Rows of a batch: `anchor[t]` and `positive[t]` share a label, `negative[t]` has another.

    Three int64 tensors of one length, on the embeddings' device.
    pytorch-metric-learning losses accept it as `indices_tuple`.
    """

    anchor: Tensor
    positive: Tensor
    negative: Tensor
