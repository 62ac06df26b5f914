"""Positives, then negatives for them, a block at a time."""

from __future__ import annotations

from torch import Tensor

from uncollapse.mining._batch import Block
from uncollapse.mining.negatives import Settings, choose_negatives
from uncollapse.mining.positives import choose_positives, inside_positives
from uncollapse.mining.triplets import Triplets

__all__ = ["compose"]


def compose(positives: str, negatives: str, block: Block, settings: Settings) -> Triplets:
    """Triplets of the block's anchors."""
    if negatives in ("hard", "semihard", "easy"):
        block.products(block.batch.plain)  # needed anyway: let the positives profit
    rows, column = choose_positives(positives, block, settings.epsilon)
    pair, negative = choose_negatives(negatives, block, rows, column, settings)
    if pair is not None:
        rows, column = rows[pair], column[pair]
    positive: Tensor
    if positives == "inside":
        positive = inside_positives(block, rows, negative)
    else:
        positive = block.at_own(block.own, rows, column)
    anchors = block.anchors if rows is block.every else block.anchors[rows]
    return Triplets(anchors, positive, negative)
