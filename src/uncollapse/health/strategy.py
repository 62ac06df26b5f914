"""Ways to mine and charge: what a guard may change in a loss, and how a config spells it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import nn

from uncollapse.mining import Miner

__all__ = ["Strategy", "apply_strategy", "changed_keys", "left_alone", "strategy_of"]

# Where a config has each of them.
_KEYS = {
    "positives": "mining.positives",
    "negatives": "mining.negatives",
    "pool": "mining.pool",
    "scale_free": "loss.scale_free",
    "margin": "loss.margin",
    "soft": "loss.soft",
}


@dataclass(frozen=True)
class Strategy:
    """Mining, its pool, the form of a triplet loss, and a factor on the learning rate.

    None means that the loss has no such choice.
    """

    positives: str | None = None
    negatives: str | None = None
    pool: int | None = None
    scale_free: bool | str | None = None
    margin: float | None = None
    soft: bool | None = None
    lr_factor: float = 1.0

    def __str__(self) -> str:
        words = [f"{self.positives} x {self.negatives}"] if self.positives else ["same tuples"]
        words += ["scale-free"] if self.scale_free is True else []
        words += [f"scale-free ({self.scale_free})"] if isinstance(self.scale_free, str) else []
        words += ["soft"] if self.soft else []
        words += ["margin 0"] if self.margin == 0 and not self.soft else []
        words += [f"pool {self.pool}"] if self.pool else []
        words += [f"lr x {self.lr_factor:.2g}"] if self.lr_factor != 1.0 else []
        return ", ".join(words)


def strategy_of(loss_fn: object) -> Strategy:
    """What a loss does now; margin and softness only of triplet losses.

    >>> from uncollapse.losses import TripletLoss
    >>> str(strategy_of(TripletLoss(margin=0.2, miner=Miner("hard", "hard"))))
    'hard x hard'
    """
    loss: Any = loss_fn
    miner = getattr(loss, "miner", None)
    form: dict[str, Any] = {}
    if (scale_free := getattr(loss, "scale_free", None)) is not None:
        form = {"scale_free": scale_free, "margin": loss.margin, "soft": loss.soft}
    if not isinstance(miner, Miner):
        return Strategy(**form)
    return Strategy(miner.positives, miner.negatives, miner.pool, **form)


def apply_strategy(loss_fn: object, strategy: Strategy) -> None:
    """Make a loss do it, in place; its miner keeps its random generator."""
    loss: Any = loss_fn
    if strategy.positives is not None:
        mined: dict[str, Any] = {
            "positives": strategy.positives,
            "negatives": strategy.negatives,
            "pool": strategy.pool,
        }
        if strategy.margin is not None and loss.miner.margin == loss.margin:
            mined["margin"] = strategy.margin  # one margin for both, as a config has it
        loss.miner = loss.miner.changed(**mined)
    for name in ("scale_free", "margin", "soft"):
        if (value := getattr(strategy, name)) is not None:
            setattr(loss, name, value)


@contextmanager
def left_alone(loss_fn: object, strategy: Strategy) -> Iterator[None]:
    """Whatever is tried on a loss inside, it then does `strategy`, and draws as it would have."""
    generators = _generators(loss_fn)
    states = [generator.get_state() for generator in generators]
    try:
        yield
    finally:
        apply_strategy(loss_fn, strategy)
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


def _generators(loss_fn: object) -> list[torch.Generator]:
    """Those of its miner, which may be another package's, and of the losses added to it."""
    parts = [getattr(loss_fn, "miner", None)]
    parts += list(loss_fn.modules()) if isinstance(loss_fn, nn.Module) else []
    found = (getattr(part, "generator", None) for part in parts)
    return list({id(one): one for one in found if isinstance(one, torch.Generator)}.values())


def changed_keys(first: Strategy, then: Strategy) -> dict[str, Any]:
    """The keys of a config in which two strategies differ, with the second's values.

    >>> changed_keys(Strategy("hard", "hard", None, False), Strategy("easy", "hard", None, True))
    {'mining.positives': 'easy', 'loss.scale_free': True}
    """
    names = [field.name for field in fields(Strategy) if field.name in _KEYS]
    pairs = {name: (getattr(first, name), getattr(then, name)) for name in names}
    return {_KEYS[name]: new for name, (old, new) in pairs.items() if new != old}
