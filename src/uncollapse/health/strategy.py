"""Strategies in a loss: read off, applied, taken back; and what they do to the modes of a class."""

from __future__ import annotations

import copy
import math
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from uncollapse._base.arrays import ArrayLike, class_ids
from uncollapse._base.check import InputError
from uncollapse.health.advice import FORM, MINED, DriftOf, RunSettings, Strategy, rank_strategies
from uncollapse.health.drifts import MODES_KEPT, Drift, ModeDrift, drift, has_unit_rows, mode_drift
from uncollapse.health.figures import spread
from uncollapse.losses import IdentityLoss, Loss, MultipleLosses, TripletLoss, TupleLoss
from uncollapse.losses.base import innermost
from uncollapse.losses.memory import memories
from uncollapse.mining import Miner

__all__ = ["RunSettings", "Strategy", "apply_strategy", "rank_strategies", "strategy_of"]

_FEWEST = 8  # rows per class, on average, that it takes to show modes
# What the miners of pytorch-metric-learning choose, in our two words.
_PML_MINERS = {
    "BatchHardMiner": ("hard", "hard"),
    "DistanceWeightedMiner": ("all", "distance"),
    "MultiSimilarityMiner": ("multi_similarity", "multi_similarity"),
}


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


def settings_of(loss_fn: object, miner: object | None = None) -> RunSettings:
    """What can be read off a loss (ours or pytorch-metric-learning's) and its miner.

    >>> from uncollapse.losses import TripletLoss
    >>> settings_of(TripletLoss(margin=0.2, miner=Miner("hard", "hard"))).positives
    'hard'
    """
    loss: Any = innermost(loss_fn)
    chooser = miner if miner is not None else getattr(loss, "miner", None)
    kind = type(chooser).__name__
    positives, negatives = _PML_MINERS.get(kind, (None, None))
    if kind == "TripletMarginMiner":
        positives, negatives = "all", getattr(chooser, "type_of_triplets", None)
    # A loss that learns a vector per class compares with those: it mines nothing.
    learns = isinstance(loss, nn.Module) and any(p.ndim > 1 for p in loss.parameters())
    if chooser is None and hasattr(loss, "margin") and not learns:
        positives, negatives = "all", "all"
    distance = getattr(loss, "distance", None)
    margin: Any = getattr(loss, "margin", None)
    # With a learned boundary (MarginLoss) the loss of a collapsed batch is not the margin.
    known = isinstance(margin, int | float) and not isinstance(margin, bool)
    known = known and not hasattr(loss, "beta")
    return RunSettings(
        positives=getattr(chooser, "positives", getattr(chooser, "pos_strategy", positives)),
        negatives=getattr(chooser, "negatives", getattr(chooser, "neg_strategy", negatives)),
        pool=getattr(chooser, "pool", None),
        margin=float(margin) if known else None,
        soft=getattr(loss, "soft", getattr(loss, "smooth_loss", None)),
        scale_free=getattr(loss, "scale_free", None),
        normalize=getattr(loss, "normalize", getattr(distance, "normalize_embeddings", None)),
        summed=isinstance(loss_fn, IdentityLoss | MultipleLosses) or None,
        memory=max((memory.size for memory in memories(loss_fn)), default=None),
        loss=None if loss_fn is None else _kind(loss, learns),
    )


def _kind(loss: object, learns: bool) -> str:
    if learns or isinstance(loss, nn.CrossEntropyLoss):
        return "proxies"
    ours = type(loss).__module__.startswith("uncollapse.") and isinstance(loss, Loss)
    return "tuples" if ours or isinstance(loss, TupleLoss) else "foreign"


def apply_strategy(loss_fn: object, strategy: Strategy) -> None:
    """Change a loss to a strategy, in place; its miner keeps its random generator."""
    loss: Any = innermost(loss_fn)
    if strategy.positives is not None:
        mined = {name: getattr(strategy, name) for name in MINED}
        if strategy.margin is not None and loss.miner.margin == loss.margin:
            mined["margin"] = strategy.margin  # one margin for both, as a config has it
        loss.miner = loss.miner.changed(**mined)
    for name in FORM:
        if (value := getattr(strategy, name)) is not None:
            setattr(loss, name, value)


def drift_meter(
    loss_fn: Any,
    own: Strategy,
    rows: Tensor,
    labels: ArrayLike | None,
    miner: Any = None,
    rate: Callable[..., Drift | ModeDrift] = drift,
) -> DriftOf:
    """Measures strategies of a loss on these rows; NaN where one cannot be measured.

    The loss, which has the strategy `own`, is left as it is. Tuples of a loss of ours that has no
    miner yet are measured with a copy; strategies of another package's loss with our triplet loss.
    """
    ours, values = isinstance(loss_fn, Loss), dict[Strategy, float]()
    changeable = ours and isinstance(getattr(innermost(loss_fn), "miner", None), Miner)
    unit = has_unit_rows(rows) or getattr(loss_fn, "normalize", False) is True
    if isinstance(loss_fn, nn.Module):
        rows = rows.to(next(loss_fn.parameters(), rows).device)
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "iub":
        labels = torch.from_numpy(labels).to(rows.device)

    def loss_with(strategy: Strategy) -> Any:
        if strategy == replace(own, lr_factor=1.0):
            # Another package's is copied: it may remember what it sees.
            loss, mining = (loss_fn, miner) if ours else copy.deepcopy((loss_fn, miner))
            return loss if mining is None else lambda z, y: loss(z, y, mining(z, y))
        if changeable:
            apply_strategy(loss_fn, strategy)
            return loss_fn
        chooser = Miner(strategy.positives or "all", strategy.negatives or "all")
        if ours and strategy.scale_free is None and hasattr(innermost(loss_fn), "miner"):
            with_miner: Any = copy.deepcopy(innermost(loss_fn))
            with_miner.miner = chooser
            return with_miner
        free: Any = strategy.scale_free or False
        return TripletLoss(margin=strategy.margin or 0.2, miner=chooser, scale_free=free)

    def meter(strategy: Strategy) -> float:
        strategy = replace(strategy, lr_factor=1.0)
        if labels is None or not spread(rows) > 0:
            return math.nan
        if strategy not in values:
            values[strategy] = math.nan
            # A loss of ours may need to know which sample a row is; others may need anything.
            unable = suppress(InputError if ours else Exception)
            with left_alone(loss_fn, own if changeable else Strategy()), unable:
                at = rate(loss_with(strategy), rows, labels, normalize=unit)
                values[strategy] = at.value
        return values[strategy]

    return meter


@contextmanager
def left_alone(loss_fn: object, strategy: Strategy) -> Iterator[None]:
    """Silent; on exit the loss has `strategy` again, and every random stream its state."""
    with random_streams_kept(loss_fn), warnings.catch_warnings(action="ignore"):
        try:
            yield
        finally:
            apply_strategy(loss_fn, strategy)


@contextmanager
def random_streams_kept(loss_fn: object = None) -> Iterator[None]:
    """On exit the streams of torch, NumPy, Python and a loss's own generators are as before."""
    # Of its miner, which may be another package's, and of the losses added to it.
    parts = [getattr(innermost(loss_fn), "miner", None)]
    parts += list(loss_fn.modules()) if isinstance(loss_fn, nn.Module) else []
    drawn_from = [getattr(part, "generator", None) for part in parts]
    generators = [each for each in drawn_from if isinstance(each, torch.Generator)]
    states = [generator.get_state() for generator in generators]
    legacy, python = np.random.get_state(), random.getstate()  # noqa: NPY002
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    try:
        with torch.random.fork_rng(devices, device_type="cuda"):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


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
    show no modes. Neither the miner's random generator nor the loss's parameters move.
    """
    if not isinstance(loss_fn, Loss) or labels is None or len(rows) < 2:
        return ()
    _, names = class_ids(labels, len(rows))
    if len(names) < 2 or len(rows) < _FEWEST * len(names):
        return ()
    own = strategy_of(loss_fn)
    meter = drift_meter(loss_fn, own, rows, labels, rate=mode_drift)
    easy = replace(own, positives=own.positives and "easy")
    value, other = meter(own), meter(easy)
    if math.isnan(value):
        return ()
    name = str(own) if own.positives is not None else type(loss_fn).__name__
    words = mode_words(name, value)
    if not other < value or value <= MODES_KEPT:
        return (words,)
    if other > MODES_KEPT:
        return (f"{words[:-1]}; {easy}: {other:+.2g})",)
    return (mode_words(name, value, str(easy), other),)
