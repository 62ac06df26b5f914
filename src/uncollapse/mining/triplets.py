"""Triplets of row indices, and the index tuples of pytorch-metric-learning they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike
from uncollapse._base.check import InputError
from uncollapse._base.classes import ClassLayout

__all__ = ["Pairs", "Triplets", "as_pairs", "as_triplets"]


class Triplets(NamedTuple):
    """Rows of a batch: `anchor[t]` and `positive[t]` share a label, `negative[t]` has another.

    Three int64 tensors of one length, on the embeddings' device. pytorch-metric-learning (PML)
    losses accept it as `indices_tuple`.
    """

    anchor: Tensor
    positive: Tensor
    negative: Tensor


class Pairs(NamedTuple):
    """Positive pairs (`anchor`, `positive`) and negative pairs (`other`, `negative`), as in PML."""

    anchor: Tensor
    positive: Tensor
    other: Tensor
    negative: Tensor


def as_triplets(indices_tuple: Sequence[Tensor] | None, labels: ArrayLike) -> Triplets:
    """Triplets of what a miner gave: ours or PML's 3-tuple as it is, PML's 4-tuple joined.

    A 4-tuple (a1, p, a2, n) gives every (a, p, n) with a in both pairs, in order of the positive
    pairs and then of the negative pairs; None gives every triplet of `labels`.

    >>> four = [torch.tensor(x) for x in ([0, 1], [1, 0], [0, 0], [2, 3])]
    >>> as_triplets(four, [5, 5, 6, 6])
    Triplets(anchor=tensor([0, 0]), positive=tensor([1, 1]), negative=tensor([2, 3]))
    >>> [len(index) for index in as_triplets(None, [5, 5, 6])]
    [2, 2, 2]
    """
    given = as_pairs(None, labels) if indices_tuple is None else _checked(indices_tuple, labels)
    if len(given) == 3:
        return Triplets(*given)
    anchor, positive, other, negative = given
    # Sorting the negative pairs by anchor makes each anchor's a run: no pairs × pairs matrix.
    other, order = torch.sort(other, stable=True)
    first = torch.searchsorted(other, anchor.contiguous())
    count = torch.searchsorted(other, anchor.contiguous(), right=True) - first
    pair = torch.repeat_interleave(count)
    place = torch.arange(len(pair), device=pair.device) - (count.cumsum(0) - count)[pair]
    return Triplets(anchor[pair], positive[pair], negative[order[first[pair] + place]])


def as_pairs(
    indices_tuple: Sequence[Tensor] | None, labels: ArrayLike, *, unique: bool = False
) -> Pairs:
    """Pairs of what a miner gave: PML's 4-tuple as it is, a triplet as one pair of each kind.

    `unique` names each pair once, as losses over sets of pairs (multi-similarity) need; without
    it a pair counts as often as triplets name it, as in PML. None gives every pair of `labels`.

    >>> three = [torch.tensor(x) for x in ([0, 0], [1, 1], [2, 3])]
    >>> pairs = as_pairs(three, [5, 5, 6, 6], unique=True)
    >>> pairs.anchor.tolist(), pairs.positive.tolist(), pairs.negative.tolist()
    ([0], [1], [2, 3])
    """
    if indices_tuple is None:
        return _every_pair(labels)
    given = _checked(indices_tuple, labels)
    pairs = Pairs(*given) if len(given) == 4 else Pairs(given[0], given[1], given[0], given[2])
    if not unique:
        return pairs
    return Pairs(*_unique(*pairs[:2]), *_unique(*pairs[2:]))


def _every_pair(labels: ArrayLike) -> Pairs:
    device = labels.device if isinstance(labels, Tensor) else torch.device("cpu")
    layout = ClassLayout.of(labels, len(labels))
    row, column = layout.is_positive.nonzero(as_tuple=True)
    positive = layout.positives[row, column]
    other, negative = np.nonzero(layout.ids[:, None] != layout.ids)
    four = (row, positive, torch.from_numpy(other), torch.from_numpy(negative))
    return Pairs(*(index.to(device) for index in four))


def _checked(indices_tuple: Sequence[Tensor], labels: ArrayLike) -> Sequence[Tensor]:
    lengths = [len(index) for index in indices_tuple]
    paired = len(lengths) == 3 and len(set(lengths)) == 1
    paired |= len(lengths) == 4 and lengths[0] == lengths[1] and lengths[2] == lengths[3]
    if not paired:
        allowed = "(anchor, positive, negative) or (anchor, positive, anchor, negative) indices"
        raise InputError("indices_tuple", f"tensors of lengths {lengths}", allowed)
    for index in indices_tuple:
        for extreme in (int(index.min()), int(index.max())) if len(index) else ():
            if not 0 <= extreme < len(labels):
                allowed = f"rows of the batch, 0 to {len(labels) - 1}"
                raise InputError("indices_tuple", f"index {extreme}", allowed)
    return indices_tuple


def _unique(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    both = torch.unique(torch.stack((first, second)), dim=1)
    return both[0], both[1]
