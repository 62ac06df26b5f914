"""A linter for batches: what mining will lack, chance of a positive of one's mode (EPS §5.2.3)."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from uncollapse._base.arrays import Array, ArrayLike, ClassLayout, class_ids
from uncollapse._base.check import InputError, check_int
from uncollapse._base.table import percent
from uncollapse.samplers.batches import SeededBatches


@dataclass(frozen=True)
class BatchReport:
    """What `check_batches` found; prints as a table. Shares are of all anchors of all batches.

    `mode_share` is the share of anchors, of those with positives, that have one of their own fine
    label among them: EPS Fig. 3b's probability. None without fine labels.
    """

    batches: int
    size: tuple[int, int]
    classes: tuple[int, int]
    positives: float
    single_class: int
    all_alone: int
    without_positive: float
    without_negative: float
    repeated: int
    mode_share: float | None = None

    @property
    def problems(self) -> list[str]:
        """The problems, in words; empty if there are none."""
        of_batches = f"of {self.batches} batches"
        mode_share = 1.0 if self.mode_share is None else self.mode_share
        problems = {
            f"{self.single_class} {of_batches} have one class: no negatives": self.single_class,
            f"{self.all_alone} {of_batches} have no class twice: no positives": self.all_alone,
            f"{percent(self.without_positive)} of the anchors have no positive and are skipped": (
                self.without_positive
            ),
            f"{self.repeated} {of_batches} hold a sample twice: a copy of the anchor can be its "
            "easy positive": self.repeated,
            f"only {percent(mode_share)} of the anchors meet their own mode among their positives: "
            "raise k (EPS Fig. 3b)": mode_share < 0.5,
        }
        return [problem for problem, occurs in problems.items() if occurs]

    def __str__(self) -> str:
        rows = [
            ("batches looked at", str(self.batches)),
            ("samples in a batch", _span(self.size)),
            ("classes in a batch", _span(self.classes)),
            ("positives of an anchor, mean", f"{self.positives:.2f}"),
            ("batches of one class", str(self.single_class)),
            ("batches with no class twice", str(self.all_alone)),
            ("anchors without a positive", percent(self.without_positive)),
            ("anchors without a negative", percent(self.without_negative)),
            ("batches with a sample twice", str(self.repeated)),
        ]
        if self.mode_share is not None:
            rows.append(("anchors that meet their own mode", percent(self.mode_share)))
        width = max(len(name) for name, _ in rows)
        lines = [f"{name:<{width}}  {value:>10}" for name, value in rows]
        return "\n".join(lines + [f"! {problem}" for problem in self.problems])


def check_batches(
    sampler: Iterable[Sequence[int]],
    labels: ArrayLike,
    n: int = 100,
    fine_labels: ArrayLike | None = None,
) -> BatchReport:
    """Draw `n` batches of any batch sampler and report what mining would lack in them.

    With coarse `labels` and `fine_labels` also how often an anchor's positives hold its own mode.
    A sampler of this package is left as it was.

    >>> from uncollapse.samplers import UniformBatchSampler
    >>> print(check_batches(UniformBatchSampler(4, 2, seed=0), [0, 0, 1, 1], n=2))
    batches looked at                      2
    samples in a batch                     2
    classes in a batch                     2
    positives of an anchor, mean        0.00
    batches of one class                   0
    batches with no class twice            2
    anchors without a positive         100\N{NO-BREAK SPACE}%
    anchors without a negative           0\N{NO-BREAK SPACE}%
    batches with a sample twice            0
    ! 2 of 2 batches have no class twice: no positives
    ! 100\N{NO-BREAK SPACE}% of the anchors have no positive and are skipped
    """
    ids, _ = class_ids(labels, None)
    fine = None if fine_labels is None else class_ids(fine_labels, len(ids), "fine_labels")[0]
    source = copy.copy(sampler) if isinstance(sampler, SeededBatches) else sampler
    drawn = list(_draw(source, check_int("n", n)))
    last = max(int(rows.max()) for rows in drawn)
    if last >= len(ids):
        given = f"{len(ids)} labels"
        raise InputError("labels", given, f"one for each sample: the sampler draws row {last}")
    own, repeated, met = [], 0, []
    for rows in drawn:
        here = ids[rows]
        same = np.bincount(here)[here] - 1
        own.append(same)
        repeated += len(np.unique(rows)) < len(rows)
        if fine is not None:
            both = np.unique(np.stack((here, fine[rows])), axis=1, return_inverse=True)[1].ravel()
            met.append(((np.bincount(both)[both] > 1)[same > 0]).astype(float))
    sizes = [len(rows) for rows in drawn]
    classes = [len(np.unique(ids[rows])) for rows in drawn]
    every = np.concatenate(own)
    lonely = np.concatenate([same == len(same) - 1 for same in own])
    seen = np.concatenate(met) if met else np.empty(0)
    return BatchReport(
        batches=len(drawn),
        size=(min(sizes), max(sizes)),
        classes=(min(classes), max(classes)),
        positives=float(every.mean()),
        single_class=sum(c == 1 for c in classes),
        all_alone=sum(not same.any() for same in own),
        without_positive=float((every == 0).mean()),
        without_negative=float(lonely.mean()),
        repeated=repeated,
        mode_share=None if fine is None or not len(seen) else float(seen.mean()),
    )


def mode_chance(labels: ArrayLike, fine_labels: ArrayLike, k: int) -> float:
    """Chance that an anchor's k − 1 positives in a PK batch hold one of its own fine label.

    Exact for classes of at least k samples drawn uniformly without replacement; smaller classes are
    taken whole. The axis of EPS Fig. 3b: choose k so that this is not small.

    >>> round(mode_chance([0, 0, 0, 0], [0, 0, 1, 1], k=2), 4)
    0.3333
    """
    check_int("k", k, 2)
    layout = ClassLayout.of(labels, None)
    fine, _ = class_ids(fine_labels, len(layout.ids), "fine_labels")
    chances = []
    for c in range(len(layout.counts)):
        alike = fine[layout.members(c)]
        size = len(alike)
        if size < 2:
            continue
        own = np.bincount(alike)[alike] - 1  # others of the anchor's mode
        draws = min(k, size) - 1
        chances.append(float(np.mean(1 - _none_of(size - 1, own, draws))))
    if not chances:
        raise InputError("labels", "no label twice", "at least one class of two samples")
    return float(np.mean(chances))


def _none_of(population: int, marked: Array, draws: int) -> Array:
    """Hypergeometric chance to draw none of the marked: C(N − m, r) / C(N, r)."""
    from scipy.special import gammaln

    unmarked = population - marked
    safe = np.maximum(unmarked - draws, 0)
    log = gammaln(unmarked + 1) - gammaln(safe + 1)
    log -= gammaln(population + 1) - gammaln(population - draws + 1)
    return np.asarray(np.where(unmarked >= draws, np.exp(log), 0.0))


def _draw(sampler: Iterable[Sequence[int]], n: int) -> Iterator[Array]:
    """`n` batches, over as many epochs as that takes."""
    if isinstance(sampler, type) or not hasattr(sampler, "__iter__"):
        raise InputError("sampler", repr(sampler), "a batch sampler: lists of row numbers")
    left = n
    while left > 0:
        before = left
        for rows in sampler:
            if np.ndim(rows) != 1:
                given = f"one that gives {rows!r}, not a list"
                raise InputError("sampler", given, "a batch sampler: lists of row numbers")
            if len(rows):
                yield np.asarray(rows, np.int64)
                left -= 1
            if left == 0:
                return
        if left == before:
            raise InputError("sampler", "no batches", "at least one batch")


def _span(pair: tuple[int, int]) -> str:
    low, high = pair
    return str(low) if low == high else f"{low} to {high}"
