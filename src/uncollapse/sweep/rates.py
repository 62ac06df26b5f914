"""How often runs collapse, and how sure that is with few of them: Wilson's score interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

from uncollapse._base.check import InputError, check_int

__all__ = ["Rate", "wilson"]

_Z = 1.959963984540054  # 95 % of a normal distribution lies within


@dataclass(frozen=True)
class Rate:
    """A share of `count` out of `total`, with the interval that holds the true one at 95 %."""

    count: int
    total: int
    low: float
    high: float

    @property
    def share(self) -> float:
        """`count` of `total`."""
        return self.count / self.total


def wilson(count: int, total: int) -> Rate:
    """The share with Wilson's interval, which is sensible for three runs and for 0 or all of them.

    >>> rate = wilson(3, 3)
    >>> rate.share, round(rate.low, 2), rate.high
    (1.0, 0.44, 1.0)
    """
    check_int("total", total)
    if check_int("count", count, 0) > total:
        raise InputError("count", count, f"at most {total}, the total")
    share, square = count / total, _Z**2
    middle = (share + square / (2 * total)) / (1 + square / total)
    room = math.sqrt(share * (1 - share) / total + square / (4 * total**2))
    half = _Z * room / (1 + square / total)
    # At the ends the interval touches 0 or 1 exactly, which rounding would miss.
    low = 0.0 if count == 0 else max(0.0, middle - half)
    high = 1.0 if count == total else min(1.0, middle + half)
    return Rate(count, total, low, high)
