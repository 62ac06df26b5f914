"""Triplets and pairs of row indices, and the tuples of pytorch-metric-learning they stand for."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from uncollapse._base.arrays import ArrayLike, label_array, points
from uncollapse._base.check import InputError, check_bool
from uncollapse.distances.frame import Batch, label_numbers, true_entries
from uncollapse.geometry.triplet_separation import separation

Tuples = Sequence[Tensor]  # our Triplets or Pairs, or what a miner of PML gives


class Triplets(NamedTuple):
    """Rows of a batch: `anchor[t]` and `positive[t]` share a label, `negative[t]` has another.

    Three int64 tensors of one length, on the embeddings' device. Where there are references,
    `positive` and `negative` are rows of those. pytorch-metric-learning (PML) losses accept it as
    `indices_tuple`.
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


def as_triplets(
    tuples: Tuples | None, labels: ArrayLike | None = None, ref_labels: ArrayLike | None = None
) -> Triplets:
    """Triplets of what a miner gave: ours or PML's 3-tuple as it is, PML's 4-tuple joined.

    A 4-tuple (a1, p, a2, n) gives every (a, p, n) with a in both pairs, in order of the positive
    pairs and then of the negative pairs; None gives every triplet of `labels` (and `ref_labels`).

    >>> four = [torch.tensor(x) for x in ([0, 1], [1, 0], [0, 0], [2, 3])]
    >>> as_triplets(four)
    Triplets(anchor=tensor([0, 0]), positive=tensor([1, 1]), negative=tensor([2, 3]))
    >>> [len(index) for index in as_triplets(None, [5, 5, 6])]
    [2, 2, 2]
    """
    given = _given(tuples, labels, ref_labels)
    if len(given) == 3:
        return Triplets(*given)
    anchor, positive, other, negative = given
    # Sorting the negative pairs by anchor makes each anchor's a run: no pairs × pairs matrix.
    other, order = torch.sort(other, stable=True)
    first = torch.searchsorted(other, anchor.contiguous())
    count = torch.searchsorted(other, anchor.contiguous(), right=True) - first
    pair = torch.repeat_interleave(count)
    member = torch.arange(len(pair), device=pair.device) - (count.cumsum(0) - count)[pair]
    return Triplets(anchor[pair], positive[pair], negative[order[first[pair] + member]])


def as_pairs(
    tuples: Tuples | None,
    labels: ArrayLike | None = None,
    ref_labels: ArrayLike | None = None,
    *,
    unique: bool = False,
) -> Pairs:
    """Pairs of what a miner gave: PML's 4-tuple as it is, a triplet as one pair of each kind.

    `unique` names each pair once, as losses over sets of pairs (multi-similarity) need; without
    it a pair counts as often as triplets name it, as in PML. None gives every pair of `labels`
    (and `ref_labels`).

    >>> three = [torch.tensor(x) for x in ([0, 0], [1, 1], [2, 3])]
    >>> pairs = as_pairs(three, unique=True)
    >>> pairs.anchor.tolist(), pairs.positive.tolist(), pairs.negative.tolist()
    ([0], [1], [2, 3])
    """
    given = _given(tuples, labels, ref_labels)
    pairs = Pairs(*given) if len(given) == 4 else Pairs(given[0], given[1], given[0], given[2])
    if not check_bool("unique", unique):
        return pairs
    return Pairs(*_unique(*pairs[:2]), *_unique(*pairs[2:]))


def checked_tuples(
    tuples: Tuples, anchors: int, candidates: int, device: torch.device
) -> Triplets | Pairs:
    """Tuples as they were given, on the device, or an `InputError` that says what is wrong.

    `anchors` and `candidates` are the numbers of rows that may be anchors, and positives or
    negatives.
    """
    try:
        given = [torch.as_tensor(index, device=device) for index in tuples]
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError("tuples", f"{type(tuples).__name__} ({error})", _ALLOWED) from None
    lengths = [index.numel() for index in given]
    paired = len(lengths) == 3 and len(set(lengths)) == 1
    paired |= len(lengths) == 4 and lengths[0] == lengths[1] and lengths[2] == lengths[3]
    if not paired or any(index.ndim != 1 for index in given):
        raise InputError("tuples", f"tensors of lengths {lengths}", _ALLOWED)
    if any(index.is_floating_point() and index.numel() for index in given):
        raise InputError("tuples", str([str(index.dtype) for index in given]), _ALLOWED)
    rooms = [anchors, candidates, anchors if len(given) == 4 else candidates, candidates]
    some = [(index, room) for index, room in zip(given, rooms, strict=False) if len(index)]
    if some:
        ends = torch.stack([end for index, _ in some for end in torch.aminmax(index)]).tolist()
        for end, room in zip(ends, [room for _, room in some for _ in range(2)], strict=True):
            if not 0 <= end < room:
                raise InputError("tuples", f"index {end}", f"rows of the batch, 0 to {room - 1}")
    whole = [index.long() for index in given]
    return Triplets(*whole) if len(whole) == 3 else Pairs(*whole)


_ALLOWED = "(anchor, positive, negative) or (anchor, positive, anchor, negative) indices"


def _given(tuples: Tuples | None, labels: ArrayLike | None, ref_labels: ArrayLike | None) -> Tuples:
    if isinstance(tuples, Triplets | Pairs) and labels is None:  # a miner's own: known to be right
        return tuples
    if tuples is None:
        if labels is None:
            raise InputError("labels", None, "labels, where no tuples are given")
        return _every_pair(labels, ref_labels)
    try:
        rows = max((int(index.max()) + 1 for index in tuples if len(index)), default=1)
    except (AttributeError, TypeError):
        raise InputError("tuples", type(tuples).__name__, _ALLOWED) from None
    anchors = rows if labels is None else len(label_array(labels))
    candidates = anchors if ref_labels is None else len(label_array(ref_labels, name="ref_labels"))
    device = tuples[0].device if isinstance(tuples[0], Tensor) else torch.device("cpu")
    return checked_tuples(tuples, anchors, candidates, device)


def _every_pair(labels: ArrayLike, ref_labels: ArrayLike | None) -> Pairs:
    numbers, ref_numbers, _ = label_numbers(labels, ref_labels)
    candidates = numbers if ref_numbers is None else ref_numbers.to(numbers.device)
    same = numbers[:, None] == candidates
    different = ~same
    if ref_numbers is None:
        same.fill_diagonal_(False)
    return Pairs(*same.nonzero(as_tuple=True), *different.nonzero(as_tuple=True))


def label_masks(batch: Batch) -> tuple[Tensor, Tensor]:
    """Which pairs share a label, and which do not."""
    apart = batch.classes.apart  # raises where there are no labels
    others = batch.labels if batch.ref_labels is None else batch.ref_labels
    negative = torch.ne(batch.labels[:, None], others)  # type: ignore[index,arg-type]
    return ~negative if apart else (~negative).fill_diagonal_(False), negative


def every_pair(batch: Batch) -> Pairs:
    """All pairs of a batch, a row with itself aside."""
    positive, negative = label_masks(batch)
    pairs, own = batch.classes.pairs, 0 if batch.classes.apart else batch.count
    others = negative.numel() - own - pairs
    return Pairs(*true_entries(positive, pairs), *true_entries(negative, others))


def _unique(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    both = torch.unique((first << 32) + second)  # far cheaper than of rows; the order is the same
    return both >> 32, both & 0xFFFFFFFF


# The one triplet the hard-mined loss is made of: HNM Theorem 3.3.


def hardest_triplet(embeddings: ArrayLike, labels: ArrayLike) -> Triplets:
    """The triplet with the largest d_ap − d_an of all, as `Triplets` of one row.

    Its triplet loss with margin α is `geometry.hard_mined_loss` with that α: the supremum HNM's
    theorems are about, where batch-hard (`Miner("hard", "hard")`) has one triplet for each anchor
    and takes their mean. As in HNM (2a) the positive of a class with one member is that member.
    Needs two classes. Its drift is positive whenever the classes are not triplet-separated.

    >>> hardest_triplet(torch.tensor([[0.0], [1.0], [3.0]]), [0, 0, 1])
    Triplets(anchor=tensor([1]), positive=tensor([0]), negative=tensor([2]))
    """
    worst = separation(points(embeddings, "embeddings").detach(), labels)
    rows = (worst.anchor, worst.positive, worst.negative)
    device = embeddings.device if isinstance(embeddings, Tensor) else None
    return Triplets(*(torch.tensor([row], device=device) for row in rows))
