"""Negatives that are too near to be true ones: wrong labels, duplicates, classes that overlap.

Each rule says of an anchor and a negative whether the two may be of one class; what any rule
suspects is left out before a strategy chooses, so that the rules go with every strategy.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from uncollapse._base.check import InputError, check_int, check_kind, check_number
from uncollapse.distances.frame import Batch, short_squares
from uncollapse.distances.tiles import BLOCK
from uncollapse.mining.blocks import AnchorBlock
from uncollapse.mining.random import kth_smallest

# For each rule its lower limit, whether that is allowed itself, and its exclusive upper limit.
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
    - `agreement`: those whose own `neighbours` nearest rows of the batch (or of the references)
      have the anchor's label more often than this share. The only rule that looks at labels: a hard
      negative amid its own class stays. Needs classes of more than `neighbours` / 2 samples in a
      batch.

    Several rules leave out the union of what each names. The rules come before a `pool` is drawn.
    An anchor with no negative left has no triplet. Distances are those of the embeddings as given.

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


def check_rules(name: str, value: FalseNegatives | None) -> FalseNegatives | None:
    """Return `value` if it is a `FalseNegatives` or None, or raise."""
    return check_kind(name, value, (FalseNegatives, type(None)), "FalseNegatives(...) or None")


def without_suspects(
    block: AnchorBlock, rules: FalseNegatives, agreed: tuple[Tensor, Tensor] | None
) -> AnchorBlock:
    """The block without suspected negatives, and without anchors that have no other.

    `agreed` is what `agreed_labels` gives, for the rule `agreement`.
    """
    plain, anchors = block.plain, block.anchors
    suspect = torch.zeros_like(block.hidden())
    if rules.absolute is not None:
        limit = torch.as_tensor(rules.absolute / plain.frame.unit, dtype=plain.frame.centre.dtype)
        limits = limit.square().to(anchors.device).expand(len(anchors))
        suspect |= plain.negatives_within(limits)
    if rules.relative is not None:
        column = plain.extreme_own(block.valid, farthest=False)
        nearest = plain.squares(block.every, block.own[block.every, column])
        suspect |= plain.negatives_within(nearest * rules.relative**2)
    if rules.quantile is not None:
        count = (block.negatives().sum(dim=1) * rules.quantile + 1e-9).long()
        suspect |= _nearest(plain.products(), plain.error, count, plain.squares)
    if agreed is not None and block.batch.labels is not None:
        label, exists = agreed
        suspect |= exists & (label == block.batch.labels[anchors][:, None])
    block.pool = block.negatives() & ~suspect
    return block.take(block.pool.any(dim=1).nonzero().flatten())


def agreed_labels(batch: Batch, neighbours: int, share: float) -> tuple[Tensor, Tensor]:
    """Of each candidate, the label that more than `share` of its nearest candidates have.

    Returns the labels, and where there is one. The candidate is not its own neighbour; with fewer
    candidates than `neighbours`, all others are. `share` is at least one half, so that no two
    labels can have it.
    """
    labels = batch.labels if batch.ref_labels is None else batch.ref_labels
    assert labels is not None  # a batch with classes has labels
    frame, offset, n = batch.frame, batch.offset, batch.candidates
    k = min(neighbours, n - 1)
    label, count = torch.empty_like(labels), torch.zeros_like(labels)
    largest = frame.band.amax()
    for start in range(0, n if k else 0, BLOCK):
        rows = torch.arange(start, min(start + BLOCK, n), device=labels.device)
        here = slice(offset + start, offset + start + len(rows))
        values = short_squares(frame, here, frame, slice(offset, len(frame)))
        values.scatter_(1, rows[:, None], torch.inf)

        def exact(r: Tensor, column: Tensor, rows: Tensor = rows) -> Tensor:
            return frame.squares(rows[r] + offset, column + offset)

        error = (frame.band[here] + largest)[:, None]
        near = _nearest(values, error, torch.full_like(rows, k), exact)
        votes = labels[near.nonzero()[:, 1].view(len(rows), k)]
        label[rows] = votes.mode(dim=1).values
        count[rows] = (votes == label[rows, None]).sum(dim=1)
    return label, count > share * k


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
    rank = torch.arange(len(r), device=r.device) - torch.searchsorted(r, r)
    taken = order[rank < missing[r]]
    chosen[r[taken], c[taken]] = True
    return chosen
