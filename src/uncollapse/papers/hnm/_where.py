"""Where along an axis HNM (17) held, and which runs retrieve worse than untrained: in words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from uncollapse.papers.hnm._point import Point

__all__ = ["STATES", "below_start", "bound_state", "unsettled", "where_bound"]

STATES = ("held", "violated", "vacuous")
_BOUNDS: tuple[tuple[str, Callable[[Point], float]], ...] = (
    ("with the hardest triplet", lambda p: p.bound),
    ("with the batch-hard mean", lambda p: p.mean_bound),
)
_NAMES = {"batch": "N", "dim": "d"}


def bound_state(end: float, bound: float) -> str:
    """`held` or `violated` by a final diameter; `vacuous` where the bound is not above 0.

    >>> [bound_state(1.0, bound) for bound in (0.5, 1.5, -0.5)]
    ['held', 'violated', 'vacuous']
    """
    if not bound > 0.0:
        return "vacuous"
    return "held" if end >= bound else "violated"


def where_bound(points: Sequence[Point], axis: str, title: str) -> str:
    """How often (17) held, was violated or said nothing, and at which values of the axis."""
    told = []
    for words, bound in _BOUNDS:
        states = [(bound_state(p.end, bound(p)), p) for p in points]
        parts = []
        for state in STATES:
            mine = [p for found, p in states if found == state]
            parts.append(f"{state} in {len(mine)}{_places(mine, points, axis)}")
        told.append(f"{words} {', '.join(parts)}")
    return f"Where (17) held, {title}, of {len(points)} runs: {'; '.join(told)}."


def below_start(points: Sequence[Point], axis: str, title: str) -> str:
    """Which runs ended with a lower R@1 than the same network had untrained; '' if none scored."""
    scored = [p for p in points if math.isfinite(p.recall) and math.isfinite(p.recall_start)]
    if not scored:
        return ""
    lost = [p for p in scored if p.recall < p.recall_start]
    start = f"Retrieval beside the untrained network, {title}:"
    if not lost:
        return f"{start} no run ends below its own start in R@1."
    where = _places(lost, scored, axis)
    return f"{start} {len(lost)} of {len(scored)} runs end below their own start in R@1{where}."


def unsettled(points: Sequence[Point], axis: str, title: str) -> str:
    """Runs too short for batch norm: what is evaluated is not yet what was trained; '' if none."""
    lost = [p for p in points if p.unsettled]
    if not lost:
        return ""
    return (
        f"Batch norm, {title}: in {len(lost)} of {len(points)} runs{_places(lost, points, axis)} "
        "the images keep less than a fifth of the share of their diameter that training batches "
        "keep. The running statistics have not caught up, so their diameter and their collapse "
        "say little."
    )


def _places(mine: Sequence[Point], every: Sequence[Point], axis: str) -> str:
    """` (N = 4, 16; 1 of 2 at 32)`: values where all runs are meant, then those where some are."""
    if not mine or len(mine) == len(every):
        return ""
    totals = Counter(getattr(p, axis) for p in every)
    counts = Counter(getattr(p, axis) for p in mine)
    whole = [str(x) for x in sorted(counts) if counts[x] == totals[x]]
    partly = [f"{counts[x]} of {totals[x]} at {x}" for x in sorted(counts) if counts[x] < totals[x]]
    name = _NAMES[axis]
    said = [f"{name} = {', '.join(whole)}"] if whole else []
    said += [", ".join(partly) if whole else ", ".join(partly).replace(" at ", f" at {name} = ", 1)]
    return f" ({'; '.join(part for part in said if part)})"
