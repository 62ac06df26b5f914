"""When the modes of classes have merged: the rules for EPS's class collapse, with their words."""

from __future__ import annotations

import math

from uncollapse.health.records import Health, Reference
from uncollapse.health.shares import above_chance, percent, share_error
from uncollapse.health.thresholds import Thresholds

__all__ = ["fine_kept", "merged_modes", "modes_left"]

_LEARNT = 0.5  # above chance: classes that stay apart
_TOLD = 0.1  # above chance: fine labels that neighbours tell a little of


def merged_modes(health: Health, limits: Thresholds, reference: Reference | None) -> str | None:
    """Why the modes inside classes have merged; None where they have not, or nothing is known.

    Fine labels decide where there are some: they know. Without, the neighbourhoods of the start do.
    """
    if health.fine_agreement is not None:
        start = math.nan if reference is None else reference.fine_agreement
        return _indistinct(health) if math.isnan(start) else _lost(health, limits, start)
    kept = health.modes_kept
    if kept is None or not kept < limits.modes_kept:
        return None
    return (
        f"the modes inside classes have merged: {percent(kept)} of the neighbourhoods that rows "
        "had in their class at the start is left"
    )


def fine_kept(health: Health, reference: Reference | None) -> float | None:
    """What fine labels tell of neighbours above chance, over what they did; None if not known."""
    if reference is None:
        return None
    now = above_chance(health.fine_agreement, health.fine_chance)
    then = above_chance(reference.fine_agreement, reference.fine_chance)
    return max(now, 0.0) / then if then > 0 and not math.isnan(now) else None


def modes_left(health: Health, reference: Reference | None) -> tuple[str, ...]:
    """What a healthy embedding keeps inside its classes, in a sentence; none if not known."""
    if health.fine_agreement is not None:
        start = math.nan if reference is None else reference.fine_agreement
        then = "" if math.isnan(start) else f", at the start {percent(start)}"
        return (f"{_words(health)}{then}, by chance {percent(health.fine_chance)}",)
    if health.modes_kept is not None:
        kept = percent(health.modes_kept)
        return (f"{kept} of the neighbourhoods inside classes at the start is left",)
    return ()


def _lost(health: Health, limits: Thresholds, then: float) -> str | None:
    now, rows, kept = health.fine_agreement, health.fine_rows, health.fine_kept
    if now is None or not rows or kept is None or not kept < limits.fine_kept:
        return None
    if then - now <= 3 * math.hypot(share_error(now, rows), share_error(then, rows)):
        return None
    return (
        f"the modes inside classes have merged: {_words(health)}, at the start {percent(then)}; "
        f"{percent(kept)} of what was above chance ({percent(health.fine_chance)}) is left"
    )


def _indistinct(health: Health) -> str | None:
    """Without a start: fine labels that neighbours tell nothing of, in classes that are apart."""
    now, chance, rows = health.fine_agreement, health.fine_chance, health.fine_rows
    # Of a network that has not learnt the classes either, nothing has merged.
    learnt = above_chance(health.agreement, health.chance) >= _LEARNT
    if now is None or chance is None or not rows or chance >= 0.9 or not learnt:
        return None
    if above_chance(now + 2 * share_error(now, rows), chance) >= _TOLD:
        return None
    return (
        f"fine labels cannot be told inside classes: {_words(health)}, by chance {percent(chance)}"
    )


def _words(health: Health) -> str:
    now = percent(health.fine_agreement)
    return f"a row's nearest neighbour of its class shares its fine label in {now}"
