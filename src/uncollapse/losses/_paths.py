"""Which of a miner's settings a triplet loss charges without asking the miner."""

from __future__ import annotations

from typing import NamedTuple, TypeGuard

from uncollapse.losses._elements import MinerLike
from uncollapse.mining import Miner

__all__ = ["Whole", "is_hardest", "whole_batch"]


class Whole(NamedTuple):
    """`all_triplets`' settings."""

    nonzero: bool
    window: bool = False


def whole_batch(miner: MinerLike | None, margin: float, soft: bool, reduction: str) -> Whole | None:
    """How to charge the batch without listing triplets; None if the triplets must be named."""
    if reduction == "max":
        return None
    keep = "all"
    if miner is not None:
        if type(miner) is not Miner or miner.pool is not None:
            return None
        if (miner.positives, miner.negatives) != ("all", "all"):
            return None
        keep = miner.keep
    if keep == "all":
        return Whole(nonzero=reduction == "nonzero")
    if soft or keep == "hard" or getattr(miner, "margin", None) != margin:
        return None
    # Kept are triplets with a positive loss, so both means are the same.
    return Whole(nonzero=True, window=keep == "semihard")


def is_hardest(miner: MinerLike | None) -> TypeGuard[Miner]:
    """Whether each anchor has one positive, easy or hard, and the nearest negative."""
    if type(miner) is not Miner or miner.pool is not None or miner.keep != "all":
        return False
    return miner.positives in ("easy", "hard") and miner.negatives == "hard"
