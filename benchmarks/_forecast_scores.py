"""Scores of a forecast, and how well they separate runs that collapsed: AUC, its interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import rankdata

from _study import Setting
from uncollapse.health import Probe, Thresholds
from uncollapse.health.forecasts import DANGEROUS

Array = np.ndarray[Any, Any]

RESAMPLES = 1000
LARGE_BATCH = 100.0  # a person's rule of thumb: batch-hard collapses in batches above this


@dataclass(frozen=True)
class Outcome:
    """A finished run beside its forecast."""

    setting: Setting
    result: Mapping[str, Any]

    @property
    def probe(self) -> Probe:
        """What its probe saw."""
        return Probe(**{name: tuple(row) for name, row in self.result["probe"].items()})

    @property
    def collapsed(self) -> bool:
        """The monitor's verdict when the run ended."""
        return self.result["verdict"] in ("network-collapse", "shrinking")

    @property
    def to_a_point(self) -> bool:
        """The stricter verdict alone."""
        return bool(self.result["verdict"] == "network-collapse")

    @property
    def harmed(self) -> bool:
        """Whether training lost a tenth or more of the R@1 that the untrained network had."""
        return bool(self.result["recall"] <= 0.9 * self.result["recall_before"])

    @property
    def held(self) -> bool:
        """Whether the final diameter respects (17)."""
        return bool(self.result["diameter_after"] >= self.result["bound"])


@dataclass(frozen=True)
class Score:
    """A number that is larger the surer a collapse is; an alarm above `alarm`."""

    name: str
    of: Callable[[Outcome], float]
    alarm: float


SCORES = (
    Score("drift at init", lambda one: float(one.result["drift"]), DANGEROUS),
    Score(
        "drift + probe",
        lambda one: -math.log(one.probe.predicted),
        -math.log(Thresholds().shrink_ratio),
    ),
    Score("bound (17), c = 2", lambda one: -one.result["bound"] / one.result["diameter"], 0.0),
    Score("batch size P x K", lambda one: float(one.setting.p * one.setting.k), LARGE_BATCH),
)
OUTCOMES: dict[str, Callable[[Outcome], bool]] = {
    "verdict": lambda one: one.collapsed,
    "network-collapse": lambda one: one.to_a_point,
    "R@1 lost": lambda one: one.harmed,
}


def auc(truth: Sequence[bool], values: Sequence[float]) -> float:
    """Chance that a run that collapsed has the larger score; NaN with one kind only."""
    return _auc_of(np.asarray(truth, bool), np.asarray(values, float))


def interval(
    runs: Sequence[Outcome], truth: Sequence[bool], values: Sequence[float]
) -> tuple[float, float]:
    """95 % by bootstrap over settings: the seeds of a setting stay together."""
    groups: dict[Setting, list[int]] = {}
    for row, one in enumerate(runs):
        groups.setdefault(replace(one.setting, seed=0), []).append(row)
    members, rng = [np.array(rows) for rows in groups.values()], np.random.default_rng(0)
    hits, scores = np.asarray(truth, bool), np.asarray(values, float)
    found = []
    for _ in range(RESAMPLES):
        rows = np.concatenate([members[g] for g in rng.integers(len(members), size=len(members))])
        found.append(_auc_of(hits[rows], scores[rows]))
    low, high = np.nanquantile(found, (0.025, 0.975))
    return float(low), float(high)


def _auc_of(truth: Array, values: Array) -> float:
    """Mann and Whitney's U over the number of pairs; ties count half."""
    hits = int(truth.sum())
    others = len(truth) - hits
    if hits == 0 or others == 0:
        return math.nan
    ranks = float(rankdata(values)[truth].sum())
    return (ranks - hits * (hits + 1) / 2) / (hits * others)
