"""Shares: above chance, their error, and in words."""

from __future__ import annotations

import math

__all__ = ["above_chance", "percent", "share_error"]


def percent(share: float | None) -> str:
    """A share in words: two digits, however small.

    >>> percent(0.00312), percent(0.5), percent(None)
    ('0.31 %', '50 %', '?')
    """
    return (
        "?"
        if share is None
        else f"{100 * share:.2g} %"
        if share < 0.995
        else f"{100 * share:.0f} %"
    )


def above_chance(share: float | None, chance: float | None) -> float:
    """0 for chance, 1 for all; NaN where it is not known.

    >>> above_chance(0.6, 0.2)
    0.49999999999999994
    """
    if share is None or chance is None or not chance < 1:
        return math.nan
    return (share - chance) / (1 - chance)


def share_error(share: float, rows: int) -> float:
    """Standard error of a share of so many rows; not 0 where it is none or all of few.

    >>> share_error(0.5, 100), share_error(1.0, 100) > 0
    (0.05, True)
    """
    near = (share * rows + 1) / (rows + 2)
    return math.sqrt(near * (1 - near) / rows)
