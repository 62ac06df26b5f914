"""Strategies: what a guard may change in a loss, a run's settings, and what to try next."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from uncollapse._base.arrays import ArrayLike, class_ids
from uncollapse.health.drifts import MODES_KEPT, has_unit_rows, mode_drift
from uncollapse.losses import IdentityLoss, Loss, MarginLoss, MultipleLosses
from uncollapse.losses.base import innermost
from uncollapse.losses.memory import memories
from uncollapse.mining import Miner, NoTripletsWarning

__all__ = ["RunSettings", "Strategy", "apply_strategy", "rank_strategies", "strategy_of"]

GENTLE = ("inside", "easy")  # positives that do not pull to a point, best first
_MARGIN = 0.2
_SLOWER = 1.0 / 3.0
_FEWEST = 8  # rows per class, on average, that it takes to show modes
_MINED, _FORM = ("positives", "negatives", "pool"), ("scale_free", "margin", "soft")
# Where a config has each field of a strategy.
_KEYS = {name: f"mining.{name}" for name in _MINED}
_KEYS |= {name: f"loss.{name}" for name in _FORM}
# What the miners of pytorch-metric-learning choose, in our two words.
_PML_MINERS = {
    "BatchHardMiner": ("hard", "hard"),
    "DistanceWeightedMiner": ("all", "distance"),
    "MultiSimilarityMiner": ("multi_similarity", "multi_similarity"),
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
    """The strategy of a loss; margin and softness only for triplet losses.

    >>> from uncollapse.losses import TripletLoss
    >>> str(strategy_of(TripletLoss(margin=0.2, miner=Miner("hard", "hard"))))
    'hard x hard'
    """
    loss: Any = innermost(loss_fn)
    miner = getattr(loss, "miner", None)
    form: dict[str, Any] = {}
    if (scale_free := getattr(loss, "scale_free", None)) is not None:
        form = {"scale_free": scale_free, "margin": loss.margin, "soft": loss.soft}
    if not isinstance(miner, Miner):
        return Strategy(**form)
    return Strategy(miner.positives, miner.negatives, miner.pool, **form)


def apply_strategy(loss_fn: object, strategy: Strategy) -> None:
    """Change a loss to a strategy, in place; its miner keeps its random generator."""
    loss: Any = innermost(loss_fn)
    if strategy.positives is not None:
        mined = {name: getattr(strategy, name) for name in _MINED}
        if strategy.margin is not None and loss.miner.margin == loss.margin:
            mined["margin"] = strategy.margin  # one margin for both, as a config has it
        loss.miner = loss.miner.changed(**mined)
    for name in _FORM:
        if (value := getattr(strategy, name)) is not None:
            setattr(loss, name, value)


@contextmanager
def left_alone(loss_fn: object, strategy: Strategy) -> Iterator[None]:
    """On exit the loss has `strategy` again, and its random generators their state."""
    # Of its miner, which may be another package's, and of the losses added to it.
    parts = [getattr(innermost(loss_fn), "miner", None)]
    parts += list(loss_fn.modules()) if isinstance(loss_fn, nn.Module) else []
    drawn_from = [getattr(part, "generator", None) for part in parts]
    generators = [each for each in drawn_from if isinstance(each, torch.Generator)]
    states = [generator.get_state() for generator in generators]
    try:
        yield
    finally:
        apply_strategy(loss_fn, strategy)
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


def changed_keys(first: Strategy, then: Strategy) -> dict[str, Any]:
    """The keys of a config in which two strategies differ, with the second's values.

    >>> changed_keys(Strategy("hard", "hard", None, False), Strategy("easy", "hard", None, True))
    {'mining.positives': 'easy', 'loss.scale_free': True}
    """
    values = {key: (getattr(first, name), getattr(then, name)) for name, key in _KEYS.items()}
    return {key: new for key, (old, new) in values.items() if new != old}


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
        loss: Any = innermost(loss_fn)
        chooser = miner if miner is not None else getattr(loss, "miner", None)
        kind = type(chooser).__name__
        positives, negatives = _PML_MINERS.get(kind, (None, None))
        if kind == "TripletMarginMiner":
            positives, negatives = "all", getattr(chooser, "type_of_triplets", None)
        if chooser is None and hasattr(loss, "margin"):
            positives, negatives = "all", "all"
        distance = getattr(loss, "distance", None)
        margin: Any = getattr(loss, "margin", None)
        # With a learned boundary (MarginLoss) the loss of a collapsed batch is not the margin.
        known = isinstance(margin, int | float) and not isinstance(margin, bool)
        known = known and not hasattr(loss, "beta")
        return cls(
            positives=getattr(chooser, "positives", getattr(chooser, "pos_strategy", positives)),
            negatives=getattr(chooser, "negatives", getattr(chooser, "neg_strategy", negatives)),
            pool=getattr(chooser, "pool", None),
            margin=float(margin) if known else None,
            soft=getattr(loss, "soft", getattr(loss, "smooth_loss", None)),
            scale_free=getattr(loss, "scale_free", None),
            normalize=getattr(loss, "normalize", getattr(distance, "normalize_embeddings", None)),
            summed=isinstance(loss_fn, IdentityLoss | MultipleLosses) or None,
            memory=max((memory.size for memory in memories(loss_fn)), default=None),
        )

    def known(self, other: RunSettings) -> RunSettings:
        """These settings, and the other's where these are unknown."""
        return replace(self, **{k: v for k, v in vars(other).items() if getattr(self, k) is None})

    @property
    def mined_over(self) -> int | None:
        """How many rows an anchor mines among: the batch's or the memory's, at most the pool."""
        rows = [size for size in (self.batch_size, self.memory) if size is not None]
        most = [size for size in (self.pool, max(rows, default=None)) if size is not None]
        return min(most, default=None)

    @property
    def strategy(self) -> Strategy:
        """The part of them that a guard may change."""
        names = _MINED if self.scale_free is None else (*_MINED, *_FORM)
        return Strategy(**{name: getattr(self, name) for name in names})

    @property
    def collapsed_loss(self) -> tuple[float, str] | None:
        """What a triplet loss is when all embeddings coincide, and what that value is called."""
        if self.margin is None or self.summed:  # what else is added has its own value there
            return None
        if self.soft:
            return math.log1p(math.exp(self.margin)), f"softplus({self.margin:g}) ="
        return (self.margin, "the margin") if self.margin > 0 else None


def rank_strategies(own: Strategy, settings: RunSettings | None = None) -> list[Strategy]:
    """The alternatives to a strategy that shrinks the embedding, best first.

    The order is that of the study on real data (docs/choosing.md). A loss without margin, or a soft
    one, gets the margin 0.2 as well: once classes are apart, none of its triplets counts, or all.
    Last comes the same strategy at a third of the learning rate.

    >>> first = Strategy("hard", "hard", scale_free=False, margin=0.0, soft=False)
    >>> [str(strategy) for strategy in rank_strategies(first)][:3]
    ['inside x hard, scale-free', 'inside x hard', 'easy x hard, scale-free']
    """
    known = settings or RunSettings()
    slower = replace(own, lr_factor=own.lr_factor * _SLOWER)
    is_triplet_loss = own.scale_free is not None
    base = own
    if is_triplet_loss and (own.soft or own.margin == 0):
        base = replace(own, margin=_MARGIN, soft=False)
    free = [replace(base, scale_free=base.scale_free or True)] if is_triplet_loss else []
    ranked: list[Strategy] = []
    if own.positives is not None:
        # With two samples of a class there is one positive, whatever it is called.
        gentle = list(GENTLE) if known.k != 2 else []
        if not is_triplet_loss:
            gentle = gentle[-1:]  # other packages have no inside positives
        elif known.several_modes:
            gentle = gentle[::-1]
        ranked += [replace(form, positives=p) for p in gentle for form in (*free, base)]
        calm = [own.positives, *["easy"] * ("easy" in gentle)]
        ranked += [replace(base, positives=p, negatives="semihard") for p in calm]
    return [strategy for strategy in dict.fromkeys([*ranked, *free, slower]) if strategy != own]


def contenders(own: Strategy, ranked: Sequence[Strategy]) -> list[Strategy]:
    """Of ranked strategies those that a short race may choose from: other positives, no more.

    Semi-hard negatives, and hard positives made scale-free, can look best after a few steps and end
    far behind; they are for runs that have nothing else.

    >>> first = Strategy("hard", "hard", scale_free=False, margin=0.2, soft=False)
    >>> len(contenders(first, rank_strategies(first)))
    4
    """
    same_rate = [strategy for strategy in ranked if strategy.lr_factor == own.lr_factor]
    mined = [strategy for strategy in same_rate if strategy.positives != own.positives]
    return [strategy for strategy in mined if strategy.negatives == own.negatives] or same_rate


def finer_classes(data: object) -> bool | None:
    """True where the data has fine labels that divide a class; None where that is not known."""
    labels, fine = (getattr(data, name, None) for name in ("labels", "fine_labels"))
    if labels is None or fine is None:
        return None
    coarse, names = class_ids(labels, None)
    parts, finer = class_ids(fine, len(coarse))
    both = len(np.unique(coarse.astype(np.int64) * len(finer) + parts))
    return True if both > len(names) else None


def mode_words(name: str, value: float, other: str = "", kept: float = math.nan) -> str:
    """What a strategy does to the modes of a class; and what another one that keeps them does.

    >>> mode_words("hard x hard", 3.5, "easy x hard", -0.24)
    'hard x hard merges the modes of a class (mode drift +3.5), where easy x hard keeps them
    (-0.24)'
    """
    does = "merges" if value > MODES_KEPT else "keeps"
    words = f"{name} {does} the modes of a class (mode drift {value:+.2g})"
    return f"{words}, where {other} keeps them ({kept:+.2g})" if other else words


def mode_facts(loss_fn: object, rows: Tensor, labels: ArrayLike | None) -> tuple[str, ...]:
    """What a loss does to the modes of these rows, and what easy positives would; or nothing.

    Nothing where the loss is not one of ours, or needs to know which sample a row is, or the rows
    show no modes. The loss is copied: neither its miner's random generator nor its parameters move.
    """
    if not isinstance(loss_fn, Loss) or labels is None or len(rows) < 2:
        return ()
    if isinstance(loss_fn, MarginLoss) and loss_fn.beta_per == "sample":
        return ()
    _, names = class_ids(labels, len(rows))
    if len(names) < 2 or len(rows) < _FEWEST * len(names):
        return ()
    trial, own = copy.deepcopy(loss_fn).to(rows.device), strategy_of(loss_fn)
    easy = replace(own, positives="easy")
    normalize, values = loss_fn.normalize or has_unit_rows(rows), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoTripletsWarning)
        values.append(mode_drift(trial, rows, labels, normalize=normalize).value)
        if own.positives not in (None, "easy"):
            apply_strategy(trial, easy)
            values.append(mode_drift(trial, rows, labels, normalize=normalize).value)
    value, other = values[0], values[-1]
    if math.isnan(value):
        return ()
    name = str(own) if own.positives is not None else type(loss_fn).__name__
    words = mode_words(name, value)
    if not other < value or value <= MODES_KEPT:
        return (words,)
    if other > MODES_KEPT:
        return (f"{words[:-1]}; {easy}: {other:+.2g})",)
    return (mode_words(name, value, str(easy), other),)
