"""From values to places, linear or logarithmic (on both sides of 0 too), with round ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from uncollapse._base.check import check_choice

__all__ = ["Scale", "finite"]

_LEAST = 1e-300


@dataclass(frozen=True)
class Scale:
    """From values in [low, high] to places in [start, end]; `kind` linear, log or symlog.

    `symlog` is linear within 1 of 0 and logarithmic beyond.

    >>> Scale(0.0, 10.0, 0.0, 100.0)(2.5), Scale(1.0, 100.0, 0.0, 100.0, "log")(10.0)
    (25.0, 50.0)
    >>> Scale(0.0, 1.0, 0, 1).ticks(), Scale(1e-4, 2.0, 0, 1, "log").ticks()
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0001, 0.001, 0.01, 0.1, 1.0])
    """

    low: float
    high: float
    start: float
    end: float
    kind: str = "linear"

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, ("linear", "log", "symlog"))

    @property
    def log(self) -> bool:
        """Whether it is logarithmic."""
        return self.kind == "log"

    def __call__(self, value: float) -> float:
        """The place of a value, to a tenth of a unit."""
        low, high = self._inner(self.low), self._inner(self.high)
        share = (self._inner(value) - low) / ((high - low) or 1.0)
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values inside the range."""
        if self.kind == "log":
            return self._decades(most) or self._steps(most)
        if self.kind == "symlog":
            reach = max(abs(self.low), abs(self.high), 1.0)
            top = math.floor(math.log10(reach))
            every = max(1, math.ceil(2 * (top + 1) / most))
            powers = [10.0**e for e in range(0, top + 1, every)]
            found = [*(-p for p in reversed(powers)), 0.0, *powers]
            return [value for value in found if self.low <= value <= self.high]
        return self._steps(most)

    @classmethod
    def around(
        cls,
        values: Iterable[float],
        start: float,
        end: float,
        *,
        log: bool | None = False,
        zero: bool = False,
    ) -> Scale:
        """A scale that holds all finite values; `log=None` decides by their range.

        `zero` includes 0. Values of a logarithmic scale that are not above 0 have no place on it.
        """
        found = finite(values)
        low, high = min(found, default=0.0), max(found, default=1.0)
        if log is None:
            log = low > 0 and high / low > 50
        if log:
            above = [value for value in found if value > 0]
            low, high = min(above, default=0.1), max(above, default=1.0)
            return cls(low / 1.2, high * 1.2, start, end, "log")
        low = min(low, 0.0) if zero else low
        pad = 0.05 * (high - low) or max(abs(high) * 0.1, 1e-12)
        return cls(low if zero and low == 0 else low - pad, high + pad, start, end)

    def _decades(self, most: int) -> list[float]:
        first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
        every = max(1, math.ceil((last - first + 1) / most))
        found = [10.0**e for e in range(first, last + 1, every)]
        if len(found) < 3:  # 2 and 5 times a power of ten as well
            powers = range(first - 1, last + 1)
            between = [float(f"{m}e{e}") for e in powers for m in (1, 2, 5)]
            found = [value for value in between if self.low <= value <= self.high]
        return found if len(found) > 1 else []

    def _steps(self, most: int) -> list[float]:
        span = (self.high - self.low) or 1.0
        size = 10.0 ** math.floor(math.log10(span / most))
        step = next(m * size for m in (1, 2, 5, 10) if span / (m * size) <= most)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        digits = max(0, 1 - math.floor(math.log10(step)))
        return [round(i * step, digits) for i in range(first, last + 1)]

    def _inner(self, value: float) -> float:
        if self.kind == "log":
            return math.log10(max(value, _LEAST))
        if self.kind == "symlog":
            beyond = 1.0 + math.log10(max(abs(value), 1.0))
            return math.copysign(beyond, value) if abs(value) > 1 else value
        return value


def finite(values: Iterable[float]) -> list[float]:
    """Those of the values that are numbers and not infinite."""
    return [float(value) for value in values if math.isfinite(value)]
