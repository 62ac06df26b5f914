"""What HNM says of its figures 5 to 12, each tested on our runs by a stated rule.

The paper shows curves, no numbers, so what can be compared is the direction.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.stats

from uncollapse.papers._compare import Claim
from uncollapse.papers.hnm._point import Point

__all__ = [
    "RULES",
    "beyond",
    "bound_claim",
    "claims_of",
    "margin_claims",
    "outlier_claims",
    "threshold",
    "threshold_claims",
    "through_training",
]

_LEVEL = 0.05
_EXACT = 8  # runs; 40,320 orders
RULES = (
    "Rules. A trend is Spearman's rank correlation over the runs: reproduced if its sign is the "
    "paper's and p < 0.05, otherwise not; p of at most 8 runs is by all their orders. A run has "
    "collapsed if its diameter fell below 1 % of the one before training; that collapse goes with "
    "one end of the axis is Fisher's exact test between the two halves of the axis, one-sided, "
    "p < 0.05. (17) is counted over the runs where it says anything, that is where it is above 0; "
    "elsewhere it is vacuous. No correction for testing several claims."
)
_WORDS = {"batch": "batch size", "dim": "dimension"}
_SAYS = {
    "batch": ("falls as the batch grows", "large batches"),
    "dim": ("grows with the dimension", "small dimensions"),
}


def claims_of(points: Sequence[Point], axis: str, title: str) -> list[Claim]:
    """The paper's claims about one panel.

    >>> claims_of([], "batch", "A")
    []
    """
    if not points:
        return []
    sign = -1.0 if axis == "batch" else 1.0
    trend, risky = _SAYS[axis]
    return [
        _trend(f"{title}: the diameter", trend, points, axis, lambda p: p.end, sign),
        _collapse(f"{title}: collapse", f"at {risky}", points, axis),
        bound_claim(f"{title}: (17), hardest triplet, c = 2", points, lambda p: p.bound),
        bound_claim(f"{title}: (17), batch-hard mean, c = 2", points, lambda p: p.mean_bound),
    ]


def beyond(points: Sequence[Point], axis: str, title: str) -> str:
    """What the paper does not ask: the diameter relative to the first one, and the drift."""
    sign = -1.0 if axis == "batch" else 1.0
    told = []
    for what, at, expected in (
        (f"against the {_WORDS[axis]}", axis, sign),
        ("against the radial drift at the start", "drift", -1.0),
    ):
        claim = _trend("", "", points, at, _left, expected)
        verdict = {True: "as expected", False: "not as expected", None: "not judged"}[claim.holds]
        told.append(f"{what} {claim.ours}, {verdict}")
    why = (
        " A wider embedding has a larger diameter before any training, so the diameter alone does "
        "not say whether the dimension protects it."
    )
    return (
        f"Beyond the paper, {title}: the share of the first diameter that is left, "
        f"{', and '.join(told)}.{why if axis == 'dim' else ''}"
    )


def through_training(points: Sequence[Point], axis: str, title: str) -> str:
    """The trend at the start, on the way and at the end: a direction may turn."""
    moments: tuple[tuple[str, Callable[[Point], float]], ...] = (
        ("before", lambda p: p.batch_start),
        ("after a quarter", lambda p: p.batch_quarter),
        ("after half", lambda p: p.batch_half),
        ("at the end", lambda p: p.batch_end),
    )
    told = []
    for words, value in moments:
        rho = _rank_correlation(points, axis, value)
        told.append(f"{words} {'-' if rho is None else f'{rho:+.2f}'}")
    return (
        f"Through training, {title}: rank correlation of the diameter of a training batch with "
        f"the {_WORDS[axis]}, {', '.join(told)}."
    )


def bound_claim(what: str, points: Sequence[Point], bound: Callable[[Point], float]) -> Claim:
    """Whether the diameter stayed above HNM (17) wherever that is above 0."""
    telling = [p for p in points if bound(p) > 0.0]
    held = sum(p.end >= bound(p) for p in telling)
    ours = f"held in {held} of {len(telling)} runs; vacuous in {len(points) - len(telling)}"
    return Claim(what, "appears to hold", ours, held == len(telling) if telling else None)


def margin_claims(panels: Sequence[Sequence[Point]]) -> list[Claim]:
    """HNM appendix C, between a panel with a small margin and one with a larger."""
    low, high = panels
    if not low or not high:
        return []
    by_cell = {(p.batch, p.p, p.dim, p.seed): p.end for p in low}
    pairs = [(by_cell.get((p.batch, p.p, p.dim, p.seed)), p.end) for p in high]
    known = [(a, b) for a, b in pairs if a is not None]
    larger = sum(b > a for a, b in known)
    p_value = scipy.stats.binomtest(larger, len(known), alternative="greater").pvalue
    ours = f"in {larger} of {len(known)} pairs of runs ({_p(p_value)}, sign test)"
    return [Claim("larger margin, larger diameter", "yes", ours, bool(p_value < _LEVEL))]


def threshold(points: Sequence[Point], axis: str = "batch") -> int | None:
    """The first value of the axis at which at least half the runs collapsed, if there is one."""
    for value in sorted({_at(p, axis) for p in points}):
        here = [p.collapsed for p in points if _at(p, axis) == value]
        if 2 * sum(here) >= len(here):
            return int(value)
    return None


def threshold_claims(panels: Sequence[Sequence[Point]]) -> list[Claim]:
    """Appendix C: a "collapse threshold around N = 128 independent of α"."""
    found = [threshold(points) for points in panels]
    words = [f"N = {n}" if n else "none" for n in found]
    ours = f"half the runs collapse from {words[0]} (smaller margin), {words[1]} (larger)"
    says = "around N = 128 for both margins"
    same = found[0] == found[1] if any(found) else None
    return [*margin_claims(panels), Claim("batch size at which collapse begins", says, ours, same)]


def outlier_claims(panels: Sequence[Sequence[Point]]) -> list[Claim]:
    """Appendix E: "a few outliers for d > 256", put down to memory warnings."""
    wide = [p for p in panels[1] if p.dim > 256]
    fell = sum(p.collapsed for p in wide)
    ours = f"{fell} of {len(wide)} runs" if wide else "no such dimension at this scale"
    return [Claim("collapse at d > 256", "a few, blamed on memory", ours, None)]


def _trend(
    what: str,
    says: str,
    points: Sequence[Point],
    axis: str,
    value: Callable[[Point], float],
    sign: float,
) -> Claim:
    if _rank_correlation(points, axis, value) is None:
        return Claim(what, says, "one value only", None)
    x, y = [_at(p, axis) for p in points], [value(p) for p in points]
    rho, p_value = _spearman(x, y)
    ours = f"ρ = {rho:+.2f} over {len(points)} runs ({_p(p_value)})"
    return Claim(what, says, ours, sign * rho > 0 and p_value < _LEVEL)


def _rank_correlation(
    points: Sequence[Point], axis: str, value: Callable[[Point], float]
) -> float | None:
    """Spearman's, over all runs; None where one side has one value only, or one unknown."""
    x, y = [_at(p, axis) for p in points], [value(p) for p in points]
    if len(set(x)) < 2 or len(set(y)) < 2 or not all(map(math.isfinite, y)):
        return None
    return _spearman(x, y)[0]


def _spearman(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Spearman's ρ and its two-sided p; of few runs by all orders they could have had.

    scipy's p is of a large sample: three runs in order would have p = 0.
    """
    found = scipy.stats.spearmanr(x, y)
    if len(x) > _EXACT:
        return float(found.statistic), float(found.pvalue)
    one, other = (scipy.stats.rankdata(values) - (len(x) + 1) / 2 for values in (x, y))
    orders = np.array(list(itertools.permutations(range(len(x)))))
    reached = np.abs(other[orders] @ one) >= abs(float(other @ one)) - 1e-9
    return float(found.statistic), float(reached.mean())


def _collapse(what: str, says: str, points: Sequence[Point], axis: str) -> Claim:
    values = sorted({_at(p, axis) for p in points})
    if len(values) < 2:
        return Claim(what, says, "one value only", None)
    middle = values[len(values) // 2]
    below = [p.collapsed for p in points if _at(p, axis) < middle]
    above = [p.collapsed for p in points if _at(p, axis) >= middle]
    table = [[sum(half), len(half) - sum(half)] for half in (above, below)]
    side = "greater" if axis == "batch" else "less"
    p_value = float(scipy.stats.fisher_exact(table, alternative=side).pvalue)
    name = "N" if axis == "batch" else "d"
    ours = (
        f"{sum(below)} of {len(below)} runs with {name} < {middle:g}, "
        f"{sum(above)} of {len(above)} with {name} ≥ {middle:g} ({_p(p_value)})"
    )
    return Claim(what, says, ours, p_value < _LEVEL)


def _at(point: Point, axis: str) -> float:
    return float(getattr(point, axis))


def _left(point: Point) -> float:
    return point.left


def _p(value: Any) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.2g}"
