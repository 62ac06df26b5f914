"""Ways to mine and charge, ordered from the one in use to the gentlest: the guard's ladder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from uncollapse.mining import Miner

__all__ = ["Strategy", "apply_strategy", "ladder", "strategy_of"]

_SMALL_POOL = 16
_SLOWER = 1.0 / 3.0


@dataclass(frozen=True)
class Strategy:
    """What the guard may change: mining, its pool, the scale-free form, the learning rate.

    None means that the loss has no such choice.
    """

    positives: str | None = None
    negatives: str | None = None
    pool: int | None = None
    scale_free: bool | None = None
    lr_factor: float = 1.0

    def __str__(self) -> str:
        words = [f"{self.positives} x {self.negatives}"] if self.positives else ["same tuples"]
        words += ["scale-free"] if self.scale_free else []
        words += [f"pool {self.pool}"] if self.pool else []
        words += [f"lr x {self.lr_factor:.2g}"] if self.lr_factor != 1.0 else []
        return ", ".join(words)


def strategy_of(loss_fn: object) -> Strategy:
    """What a loss does now.

    >>> from uncollapse.losses import TripletLoss
    >>> str(strategy_of(TripletLoss(margin=0.2, miner=Miner("hard", "hard"))))
    'hard x hard'
    """
    loss: Any = loss_fn
    miner = getattr(loss, "miner", None)
    scale_free = getattr(loss, "scale_free", None)
    if not isinstance(miner, Miner):
        return Strategy(scale_free=scale_free)
    return Strategy(miner.positives, miner.negatives, miner.pool, scale_free)


def ladder(first: Strategy) -> list[Strategy]:
    """The alternatives to a strategy, the nearest first.

    Scale-free with the same mining; easy positives; semi-hard negatives; both; a smaller pool; and
    at last the same again at a third of the learning rate.

    >>> [str(rung) for rung in ladder(Strategy("hard", "hard", scale_free=False))][:2]
    ['hard x hard, scale-free', 'easy x hard']
    """
    rungs = []
    if first.scale_free is False:
        rungs.append(replace(first, scale_free=True))
    if first.positives is not None:
        rungs.append(replace(first, positives="easy"))
        rungs.append(replace(first, negatives="semihard"))
        rungs.append(replace(first, positives="easy", negatives="semihard"))
        if first.pool is None or first.pool > _SMALL_POOL:
            rungs.append(replace(first, pool=_SMALL_POOL))
    rungs.append(replace(first, lr_factor=first.lr_factor * _SLOWER))
    unique = dict.fromkeys(rungs)
    return [rung for rung in unique if rung != first]


def apply_strategy(loss_fn: object, strategy: Strategy) -> None:
    """Make a loss do it, in place; its miner keeps its random generator."""
    loss: Any = loss_fn
    if strategy.positives is not None:
        loss.miner = loss.miner.changed(
            positives=strategy.positives,
            negatives=strategy.negatives,
            pool=strategy.pool,
        )
    if strategy.scale_free is not None:
        loss.scale_free = strategy.scale_free
