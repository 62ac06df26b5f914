"""Negatives that are too near to be true ones: wrong labels, duplicates, classes that overlap.

Each rule says of an anchor and a negative whether the two may be of one class; what any rule
suspects is left out before a strategy chooses, so that the rules go with every strategy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from uncollapse._base.check import InputError, check_int, check_number
from uncollapse.distances.batch import Batch
from uncollapse.distances.tiles import BLOCK, short_squares
from uncollapse.mining.blocks import Block, kth_smallest

__all__ = ["FalseNegatives", "Leaders", "leaders", "without_false_negatives"]

# Of each rule the least value, whether it is allowed itself, and what no value reaches.
_RULES = {
    "absolute": (0.0, False, math.inf),
    "relative": (0.0, False, math.inf),
    "quantile": (0.0, False, 1.0),
    "agreement": (0.5, True, 1.0),
}


@dataclass(frozen=True, repr=False)
class FalseNegatives:
    """Which negatives a `Miner` leaves out because they may be positives; None: rule not used.

    - `absolute`: those nearer than this distance. For normalised embeddings: without a fixed scale
      no distance means much, and a batch that shrinks below it has no negatives at all.
    - `relative`: those nearer than this share of the distance to the anchor's nearest positive,
      whichever positive is then chosen: the farthest would make suspects of all hard negatives.
      Semi-hard negatives of easy positives are beyond 1 already. sentence-transformers' margins are
      of similarities; its `relative_margin` of 0.05 leaves out what has 0.95 of the similarity.
    - `quantile`: the nearest of this share of an anchor's negatives, rounded down. Needs no scale
      and never empties a batch.
    - `agreement`: those of whose own `neighbours` nearest rows of the batch (or of the references)
      more than this share have the anchor's label. The only rule that looks at labels: a hard
      negative amid its own class stays. Needs classes of more than `neighbours` / 2 samples in a
      batch.

    What several rules name is their union. The rules come before a `pool` is drawn. An anchor to
    which no negative is left has no triplet. Distances are those of the embeddings as given.

    >>> FalseNegatives(quantile=0.05)
    FalseNegatives(quantile=0.05)
    """

    absolute: float | None = None
    relative: float | None = None
    quantile: float | None = None
    agreement: float | None = None
    neighbours: int = 3

    def __post_init__(self) -> None:
        check_int("neighbours", self.neighbours)
        given = {name: getattr(self, name) for name in _RULES if getattr(self, name) is not None}
        if not given:
            raise InputError("false_negatives", "no rule", "at least one of " + ", ".join(_RULES))
        for name, value in given.items():
            low, itself, high = _RULES[name]
            if not low <= check_number(name, value) < high or (value == low and not itself):
                span = f"{'of at least' if itself else 'above'} {low:g}"
                span += "" if high == math.inf else f" and below {high:g}"
                raise InputError(name, value, f"a number {span}")

    def __repr__(self) -> str:
        given = [(f.name, getattr(self, f.name)) for f in fields(self)]
        shown = [f"{name}={value!r}" for name, value in given if value is not None]
        return f"FalseNegatives({', '.join(shown if self.agreement else shown[:-1])})"


@dataclass(frozen=True)
class Leaders:
    """`label[j]` is what the neighbours of candidate j agree on, where `found[j]` says they do."""

    label: Tensor
    found: Tensor


def without_false_negatives(block: Block, rules: FalseNegatives, agreed: Leaders | None) -> Block:
    """The block without suspected negatives, and without anchors to which none is left."""
    suspect = torch.zeros_like(block.hidden())
    if rules.absolute is not None:
        suspect |= nearer_than(block, rules.absolute)
    if rules.relative is not None:
        suspect |= nearer_than_positive(block, rules.relative)
    if rules.quantile is not None:
        suspect |= nearest_share(block, rules.quantile)
    if agreed is not None:
        suspect |= taken_for_own(block, agreed)
    left = block.negatives() & ~suspect
    block.pool = left
    return block.take(left.any(dim=1).nonzero().flatten())


def nearer_than(block: Block, distance: float) -> Tensor:
    """`[b, N]`: negatives with d_an < distance."""
    look = block.plain
    limit = torch.as_tensor(distance / look.frame.unit, dtype=look.frame.centre.dtype) ** 2
    return look.negatives_within(limit.to(block.anchors.device).expand(len(block.anchors)))


def nearer_than_positive(block: Block, share: float) -> Tensor:
    """`[b, N]`: negatives with d_an < share · (distance to the nearest positive)."""
    look = block.plain
    nearest = block.at_own(block.own, block.every, look.nearest_own())
    return look.negatives_within(look.squares(block.every, nearest) * share**2)


def nearest_share(block: Block, share: float) -> Tensor:
    """`[b, N]`: the nearest floor(share · negatives) of each anchor; of equals the lowest index."""
    look = block.plain
    count = (block.negatives().sum(dim=1) * share + 1e-9).long()
    return _nearest(look.products(), look.error, count, look.squares)


def taken_for_own(block: Block, agreed: Leaders) -> Tensor:
    """`[b, N]`: candidates whose neighbours agree on the anchor's label."""
    labels = block.batch.labels
    assert labels is not None  # a batch with classes has labels
    return agreed.found & (agreed.label == labels[block.anchors][:, None])


def leaders(batch: Batch, neighbours: int, share: float) -> Leaders:
    """Of each candidate, the label that more than `share` of its nearest candidates have.

    The candidate is not its own neighbour; with fewer candidates than `neighbours`, all others
    are. `share` is at least one half, so that no two labels can lead.
    """
    labels = batch.labels if batch.ref_labels is None else batch.ref_labels
    assert labels is not None
    frame, offset, n = batch.frame, batch.offset, batch.candidates
    k = min(neighbours, n - 1)
    label, count = torch.empty_like(labels), torch.zeros_like(labels)
    widest = frame.band.amax()
    for start in range(0, n if k else 0, BLOCK):
        rows = torch.arange(start, min(start + BLOCK, n), device=labels.device)
        here = slice(offset + start, offset + start + len(rows))
        values = short_squares(frame, here, frame, slice(offset, len(frame)))
        values.scatter_(1, rows[:, None], torch.inf)

        def exact(r: Tensor, column: Tensor, rows: Tensor = rows) -> Tensor:
            return frame.squares(rows[r] + offset, column + offset)

        near = _nearest(
            values, (frame.band[here] + widest)[:, None], torch.full_like(rows, k), exact
        )
        votes = labels[near.nonzero()[:, 1].view(len(rows), k)]
        label[rows] = votes.mode(dim=1).values
        count[rows] = (votes == label[rows, None]).sum(dim=1)
    return Leaders(label, count > share * k)


def _nearest(
    values: Tensor, error: Tensor, count: Tensor, exact: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Mask of the `count[i]` least of row i, whose values are off by up to `error[i]`.

    What rounding leaves in doubt is measured: `exact` gives values for rows and columns.
    """
    last = kth_smallest(values, count.clamp(min=1))
    some = (count > 0)[:, None]
    # The k-th least value is off by no more than each of them.
    sure = some & (values < last - 2 * error)
    doubt = some & (values <= last + 2 * error) & ~sure
    missing = count - sure.sum(dim=1)
    open_ = doubt.sum(dim=1) > missing
    chosen = sure | (doubt & ~open_[:, None])
    r, c = (doubt & open_[:, None]).nonzero(as_tuple=True)
    order = torch.argsort(exact(r, c), stable=True)
    order = order[torch.argsort(r[order], stable=True)]
    place = torch.arange(len(r), device=r.device) - torch.searchsorted(r, r)
    taken = order[place < missing[r]]
    chosen[r[taken], c[taken]] = True
    return chosen
