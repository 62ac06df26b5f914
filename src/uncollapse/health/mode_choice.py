"""Which strategies keep the modes of a class, by their mode drift, and how that is said."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from torch import Tensor

from uncollapse._base.arrays import ArrayLike, class_ids
from uncollapse.health.modal_drift import MODES_KEPT, mode_drift
from uncollapse.health.radial_drift import has_unit_rows
from uncollapse.health.strategy import Strategy, apply_strategy, strategy_of
from uncollapse.losses import Loss, MarginLoss
from uncollapse.mining import NoTripletsWarning

__all__ = ["finer_classes", "keeps_modes", "merges_modes", "merging_words", "mode_facts"]

_FEWEST = 8  # rows of a class on average, below which a mode has none to show it


class Measured(Protocol):
    """A strategy with its mode drift."""

    @property
    def strategy(self) -> Strategy:
        """What is mined and charged."""

    @property
    def mode_drift(self) -> float:
        """NaN where it is not known."""


def keeps_modes(cell: Measured) -> bool:
    """Whether its mode drift is known and at most 0.1."""
    return cell.mode_drift <= MODES_KEPT


def merges_modes(cell: Measured) -> bool:
    """Whether its mode drift is known and above 0.1."""
    return cell.mode_drift > MODES_KEPT


def merging_words(own: Sequence[Measured], other: Measured) -> str:
    """What merges modes beside what keeps them; of several, the least merging is said."""
    least = min(own, key=lambda cell: cell.mode_drift)
    return _words(str(least.strategy), least.mode_drift, str(other.strategy), other.mode_drift)


def finer_classes(data: object) -> bool | None:
    """True where the data has fine labels that divide a class; None where that is not known."""
    labels, fine = (getattr(data, name, None) for name in ("labels", "fine_labels"))
    if labels is None or fine is None:
        return None
    coarse, names = class_ids(labels, None)
    parts, finer = class_ids(fine, len(coarse))
    both = len(np.unique(coarse.astype(np.int64) * len(finer) + parts))
    return True if both > len(names) else None


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
    sphere = loss_fn.normalize or has_unit_rows(rows)
    value = _value(trial, rows, labels, sphere)
    if math.isnan(value):
        return ()
    name = str(own) if own.positives is not None else type(loss_fn).__name__
    if own.positives in (None, "easy"):
        return (_alone(name, value),)
    easy = replace(own, positives="easy")
    apply_strategy(trial, easy)
    other = _value(trial, rows, labels, sphere)
    if not other < value or value <= MODES_KEPT:
        return (_alone(name, value),)
    if other > MODES_KEPT:
        return (f"{_alone(name, value)[:-1]}; {easy}: {other:+.2g})",)
    return (_words(name, value, str(easy), other),)


def _value(loss_fn: Loss, rows: Tensor, labels: ArrayLike, sphere: bool) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoTripletsWarning)
        return mode_drift(loss_fn, rows, labels, normalized=sphere).value


def _words(name: str, value: float, other: str, kept: float) -> str:
    return f"{_alone(name, value)}, where {other} keeps them ({kept:+.2g})"


def _alone(name: str, value: float) -> str:
    does = "merges the modes of a class" if value > MODES_KEPT else "keeps the modes of a class"
    return f"{name} {does} (mode drift {value:+.2g})"
