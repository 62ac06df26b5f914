"""What is known of a run's loss, mining and batch, read off whatever loss it has."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from uncollapse.health.strategy import Strategy
from uncollapse.losses import IdentityLoss, MultipleLosses
from uncollapse.losses.memory import memories

__all__ = ["RunSettings"]

# What the miners of pytorch-metric-learning choose, in our two words.
_PML_MINERS = {
    "BatchHardMiner": ("hard", "hard"),
    "BatchEasyHardMiner": ("easy", "hard"),
    "DistanceWeightedMiner": ("all", "distance"),
    "MultiSimilarityMiner": ("multi_similarity", "multi_similarity"),
}


@dataclass(frozen=True)
class RunSettings:
    """What is known of a run: None where it is not. `margin` only for losses in distances.

    `k` is the samples of a class in a batch, `several_modes` whether classes have several modes,
    `summed` whether other losses are added to this one, `memory` the rows of a cross-batch memory.

    >>> from uncollapse.losses import TripletLoss
    >>> from uncollapse.mining import Miner
    >>> RunSettings.of(TripletLoss(margin=0.2, miner=Miner("hard", "hard"))).positives
    'hard'
    """

    positives: str | None = None
    negatives: str | None = None
    pool: int | None = None
    margin: float | None = None
    soft: bool | None = None
    scale_free: bool | str | None = None
    normalize: bool | None = None
    batch_size: int | None = None
    lr: float | None = None
    k: int | None = None
    several_modes: bool | None = None
    summed: bool | None = None
    memory: int | None = None

    @classmethod
    def of(cls, loss_fn: object, miner: object | None = None) -> RunSettings:
        """What can be read off a loss (ours or pytorch-metric-learning's) and its miner."""
        loss = loss_fn
        chooser = miner if miner is not None else getattr(loss, "miner", None)
        kind = type(chooser).__name__
        positives, negatives = _PML_MINERS.get(kind, (None, None))
        if kind == "TripletMarginMiner":
            positives, negatives = "all", getattr(chooser, "type_of_triplets", None)
        if kind == "BatchEasyHardMiner":
            positives = getattr(chooser, "pos_strategy", positives)
            negatives = getattr(chooser, "neg_strategy", negatives)
        if chooser is None and hasattr(loss, "margin"):
            positives, negatives = "all", "all"
        distance = getattr(loss, "distance", None)
        return cls(
            positives=getattr(chooser, "positives", positives),
            negatives=getattr(chooser, "negatives", negatives),
            pool=getattr(chooser, "pool", None),
            # With a learned boundary (MarginLoss) a collapsed batch is not charged the margin.
            margin=None if hasattr(loss, "beta") else _number(getattr(loss, "margin", None)),
            soft=getattr(loss, "soft", getattr(loss, "smooth_loss", None)),
            scale_free=getattr(loss, "scale_free", None),
            normalize=getattr(loss, "normalize", getattr(distance, "normalize_embeddings", None)),
            summed=isinstance(loss, IdentityLoss | MultipleLosses) or None,
            memory=max((one.size for one in memories(loss)), default=None),
        )

    def known(self, other: RunSettings) -> RunSettings:
        """These settings, and the other's where these are unknown."""
        filled = {k: v for k, v in vars(other).items() if getattr(self, k) is None}
        return replace(self, **filled)

    @property
    def mined_over(self) -> int | None:
        """How many rows an anchor mines among: the batch's or the memory's, at most the pool."""
        rows = [size for size in (self.batch_size, self.memory) if size is not None]
        most = [size for size in (self.pool, max(rows, default=None)) if size is not None]
        return min(most, default=None)

    @property
    def strategy(self) -> Strategy:
        """The part of them that a guard may change."""
        mined = Strategy(self.positives, self.negatives, self.pool)
        if self.scale_free is None:
            return mined
        return replace(mined, scale_free=self.scale_free, margin=self.margin, soft=self.soft)

    @property
    def collapsed_loss(self) -> tuple[float, str] | None:
        """What a triplet loss is when all embeddings coincide, and what that value is called."""
        if self.margin is None or self.summed:  # what else is added has its own value there
            return None
        if self.soft:
            value = math.log1p(math.exp(self.margin))
            return value, f"softplus({self.margin:g}) ="
        return (self.margin, "the margin") if self.margin > 0 else None


def _number(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return None
