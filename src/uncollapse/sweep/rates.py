"""How often runs collapse, and how sure that is with few of them: Wilson's score interval."""

from __future__ import annotations

from dataclasses import dataclass

from uncollapse._base.check import InputError, check_int
from uncollapse.metrics.uncertainty import wilson_bounds

__all__ = ["Rate", "wilson"]


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
    low, high = wilson_bounds(count / total, total)
    return Rate(count, total, low, high)
