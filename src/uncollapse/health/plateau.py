"""A loss that sits still: at the margin, at softplus(0) = 0.6931, or anywhere above 0."""

from __future__ import annotations

import math
from dataclasses import dataclass

from uncollapse._base.check import check_int, check_number

__all__ = ["LossWatch"]

_SOFTPLUS_0 = math.log(2.0)


@dataclass
class LossWatch:
    """Counts for how many updates the loss has stayed within `tolerance` of one value.

    That value is `level`, what the loss of a collapsed batch would be, where it is known; else
    the value at which the loss came to rest.

    >>> watch = LossWatch(level=0.2, needed=3)
    >>> for loss in (0.31, 0.2003, 0.2, 0.1999):
    ...     watch.add(loss)
    >>> watch.stuck, watch.at_level, watch.words
    (True, True, 'loss has sat at the margin 0.2 for 3 updates')
    """

    level: float | None = None
    name: str = "the margin"
    needed: int = 20
    tolerance: float = 0.01
    count: int = 0
    value: float = math.nan

    def __post_init__(self) -> None:
        check_int("needed", self.needed)
        check_number("tolerance", self.tolerance, 0.0)

    def add(self, loss: float) -> None:
        """Take note of one loss."""
        if self.level is not None and self._near(loss, self.level):
            anchor = self.level
        elif self._near(loss, _SOFTPLUS_0):
            anchor = _SOFTPLUS_0
        elif self._near(loss, self.value):
            anchor = self.value
        else:
            anchor = loss
        self.count = self.count + 1 if anchor == self.value else 1
        self.value = anchor

    @property
    def stuck(self) -> bool:
        """Whether the loss has sat still for long enough. A loss of 0 is no plateau: it is done."""
        return self.count >= self.needed and self.value > 0

    @property
    def at_level(self) -> bool:
        """Whether it is stuck where a collapsed embedding would be."""
        return self.stuck and self.value in (self.level, _SOFTPLUS_0)

    @property
    def words(self) -> str:
        """Where the loss has sat, for a reason; empty if it moves."""
        if not self.stuck:
            return ""
        if self.value == self.level:
            place = f"{self.name} {self.value:.4g}"
        elif self.value == _SOFTPLUS_0:
            place = "softplus(0) = 0.6931"
        else:
            place = f"{self.value:.4g}"
        return f"loss has sat at {place} for {self.count} updates"

    def _near(self, loss: float, value: float) -> bool:
        return abs(loss - value) <= self.tolerance * abs(value)
