"""The network before training beside the end, over seeds: who ends below where it began."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from uncollapse.metrics import over_seeds
from uncollapse.papers._page import Table

__all__ = ["BEFORE", "Course", "before_table", "spread", "with_std"]

BEFORE = "before training"


@dataclass(frozen=True)
class Course:
    """A score of a method before training and at the end, one of each per seed.

    >>> Course("Trip. + SH", "R@1", [49.7, 49.9], [37.0, 38.0]).sentence
    'Trip. + SH ends below the network before training in R@1: 37.5 against 49.8, 2 of 2 seeds.'
    """

    method: str
    metric: str
    before: Sequence[float]
    end: Sequence[float]

    @property
    def below(self) -> int:
        """How many seeds end below their start."""
        return sum(end < start for start, end in zip(self.before, self.end, strict=True))

    @property
    def sentence(self) -> str:
        """That it ends below its start, if the mean does or a seed; else nothing."""
        start, end = spread(self.before)[0], spread(self.end)[0]
        if not self.below and not end < start:
            return ""
        count = len(self.end)
        seeds = f"{self.below} of {count} seed{'s' * (count != 1)}"
        if end < start:
            said = f"in {self.metric}: {end:.1f} against {start:.1f}, {seeds}"
        else:
            mean = f"the mean is {end:.1f} against {start:.1f}"
            said = f"in {self.metric} with {seeds}; {mean}"
        return f"{self.method} ends below the network before training {said}."


def before_table(courses: Iterable[Course], title: str = "") -> Table:
    """One row per method and score; under it, those that end below their start."""
    found = list(courses)
    rows = [
        [one.method, one.metric, with_std(one.before), with_std(one.end), _gap(one)]
        for one in found
    ]
    head = ["method", "score", BEFORE, "at the end", "end − before"]
    return Table(head, rows, title, notes=[one.sentence for one in found if one.sentence])


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation over seeds; NaN where there are too few for it.

    >>> spread([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    if len(values) < 2:
        return (float(values[0]) if values else math.nan), math.nan
    found = over_seeds(list(values))
    return found.mean, found.std


def with_std(values: Sequence[float], decimals: int = 1) -> str:
    """The mean and, of several seeds, the standard deviation.

    >>> with_std([1.0, 3.0]), with_std([2.0])
    ('2.0 ± 1.4', '2.0')
    """
    mean, std = (f"{value:.{decimals}f}" for value in spread(values))
    return mean if std == "nan" else f"{mean} ± {std}"


def _gap(one: Course) -> str:
    return f"{spread(one.end)[0] - spread(one.before)[0]:+z.1f}"
