"""What a verification is worth: the ROC curve of pairs, and the figures read off it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse.metrics.result_table import Result
from uncollapse.metrics.uncertainty import Interval

__all__ = ["RocCurve", "VerificationResult"]


@dataclass(frozen=True)
class RocCurve:
    """Corners of the curve, from the strictest threshold: false and true accept rates.

    `thresholds` are in the result's `unit`; the first, which accepts nothing, is infinite.
    """

    far: Array
    tar: Array
    thresholds: Array

    def __len__(self) -> int:
        return len(self.far)


@dataclass(frozen=True)
class VerificationResult(Result):
    """How well a threshold tells pairs of one class from pairs of two.

    `tar[f]` is the largest true accept rate at a false accept rate of at most f, and
    `thresholds[f]` the threshold; both None where there are fewer than 1/f different pairs, too few
    to say. `eer` is where the two errors are equal. `accuracy` is the best there is, at
    `accuracy_threshold`, chosen on the pairs themselves; `fold_accuracy` that of each fold at the
    best threshold of the others. `unit` is what thresholds are of: a `"score"` or `"cosine"`
    (accepted from there up) or a `"distance"` (accepted up to there). `exact` is False where
    thresholds were `thresholds_tried` of those there are; the counts at each are exact. `intervals`
    holds those there are, by the names of `to_dict`.
    """

    auc: float
    eer: float
    eer_threshold: float
    accuracy: float
    accuracy_threshold: float
    tar: Mapping[float, float | None]
    thresholds: Mapping[float, float | None]
    same: int
    different: int
    unit: str
    exact: bool
    thresholds_tried: int
    fold_accuracy: tuple[float, ...] = ()
    intervals: Mapping[str, Interval] = field(default_factory=dict, repr=False, compare=False)
    roc: RocCurve | None = field(default=None, repr=False, compare=False)

    @property
    def mean_fold_accuracy(self) -> float:
        """Mean over the folds; NaN without folds."""
        return float(np.mean(self.fold_accuracy)) if self.fold_accuracy else math.nan

    @property
    def fold_standard_error(self) -> float:
        """Standard error of that mean, as LFW's protocol reports it; NaN below two folds."""
        many = len(self.fold_accuracy)
        return float(np.std(self.fold_accuracy, ddof=1) / math.sqrt(many)) if many > 1 else math.nan

    def to_dict(self) -> dict[str, Any]:
        """Numbers by name: auc, eer, accuracy, tar@f, their thresholds, and the counts."""
        numbers: dict[str, Any] = {"auc": self.auc, "eer": self.eer, "accuracy": self.accuracy}
        if self.fold_accuracy:
            numbers["fold_accuracy"] = self.mean_fold_accuracy
            numbers["fold_standard_error"] = self.fold_standard_error
        numbers |= {f"tar@{rate:g}": value for rate, value in self.tar.items()}
        numbers |= {
            "eer_threshold": self.eer_threshold,
            "accuracy_threshold": self.accuracy_threshold,
        }
        numbers |= {f"threshold@{rate:g}": value for rate, value in self.thresholds.items()}
        return numbers | {
            "unit": self.unit,
            "same": self.same,
            "different": self.different,
            "exact": self.exact,
            "thresholds_tried": self.thresholds_tried,
        }
