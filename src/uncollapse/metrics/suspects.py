"""Labels that the embedding contradicts: how many, which, and what they should be."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from uncollapse._base.arrays import Array, ArrayLike, class_ids, points
from uncollapse._base.check import InputError, check_int
from uncollapse._base.progress import ProgressOption, progress_reporter
from uncollapse.metrics.nearest_rows import near_lists
from uncollapse.metrics.ranking import check_directions, parse_bytes

__all__ = ["SuspectLabels", "VoteFit", "Votes", "count_votes", "fit_votes", "suspect_labels"]


# What the labels of neighbours say about a row's own: votes, and how far they can be trusted.

_ROWS = 4096  # counted at a time
_RANGE = (math.log(0.01), math.log(10.0))  # of τ, which is searched for by its logarithm
_GRID = 16  # values that are tried first: the likelihood may have more than one hump
_STEPS = 16  # of golden sections around the best: τ to a few millionths
_LEAST = 10.0  # log-likelihood that neighbours must add in all to count as knowing anything
_HALVINGS = 40
_GOLDEN = (math.sqrt(5) - 1) / 2
_SURE = 0.999  # the largest share of neighbours that counts as sharing the class


@dataclass(frozen=True, eq=False)
class Votes:
    """`count[i, j]` votes for class `label[i, j]`, if `first[i, j]`: each class is named once.

    `own` `[N]` are those for the row's own label, `agreement` the mean share of neighbours with it.
    """

    label: Array
    count: Array
    first: Array
    own: Array
    agreement: float


@dataclass(frozen=True, eq=False)
class VoteFit:
    """`ratio[i]`: log of how much likelier its neighbours make the label of row i than chance.

    `rate` is η, the share of labels that owe nothing to their neighbours; `information` the mean
    log-likelihood that neighbours add, 0 where that is no more than chance; `suggested` the
    likeliest class.
    """

    ratio: Array
    rate: float
    information: float
    suggested: Array

    @property
    def wrong(self) -> Array:
        """P(the label is not from its neighbours | all labels)."""
        chosen: Array = self.rate / (self.rate + (1 - self.rate) * np.exp(_bounded(self.ratio)))
        return chosen


def count_votes(near: Array, ids: Array, decay: float) -> Votes:
    """Votes of neighbours `near` `[N, k]`, nearest first; that of rank r weighs r^-decay.

    >>> votes = count_votes(np.array([[1, 2], [0, 2], [1, 0]]), np.array([7, 7, 8]), 0.0)
    >>> votes.own.tolist(), votes.count.tolist()
    ([1.0, 1.0, 0.0], [[1.0, 1.0], [1.0, 1.0], [2.0, 2.0]])
    """
    label = ids[near]
    weight = np.arange(1, near.shape[1] + 1) ** -decay
    count, first = np.empty(label.shape), np.empty(label.shape, np.bool_)
    for low in range(0, len(label), _ROWS):
        part = label[low : low + _ROWS]
        same = part[:, :, None] == part[:, None, :]
        count[low : low + _ROWS] = same @ weight
        first[low : low + _ROWS] = ~np.tril(same, -1).any(axis=2)
    mine = label == ids[:, None]
    return Votes(label, count, first, np.where(mine, weight, 0.0).sum(axis=1), float(mine.mean()))


def fit_votes(votes: Votes, ids: Array, judged: Array) -> VoteFit:
    """τ and η that make the labels of the `judged` rows likeliest, and what they say of each row.

    Rows that are not judged vote, and are told what their neighbours suggest.
    """
    share = np.bincount(ids) / len(ids)
    chance = float((share**2).sum())
    same = min(max((votes.agreement - chance) / (1 - chance), 0.0), _SURE)
    weight = np.log1p(same / (1 - same) / share)  # of a vote for each class
    seen = np.where(votes.first, np.log(share[votes.label]), -np.inf)
    power = weight[votes.label] * votes.count
    own = weight[ids] * votes.own
    with np.errstate(divide="ignore"):
        rest = np.log(np.maximum(1 - np.exp(seen).sum(axis=1), 0.0))  # classes without a vote

    def ratios(tau: float) -> Array:
        top = seen + tau * power
        high = np.maximum(top.max(axis=1), rest)
        total = np.exp(top - high[:, None]).sum(axis=1) + np.exp(rest - high)
        found: Array = tau * own - high - np.log(total)
        return found

    def likelihood(log_tau: float) -> float:
        return _noise_rate(np.exp(_bounded(ratios(math.exp(log_tau))[judged])))[1]

    grid = np.linspace(*_RANGE, _GRID).tolist()
    best_of_grid = int(np.argmax([likelihood(one) for one in grid]))
    around = grid[max(best_of_grid - 1, 0)], grid[min(best_of_grid + 1, _GRID - 1)]
    tau = math.exp(_highest(likelihood, *around))
    ratio = ratios(tau)
    rate, information = _noise_rate(np.exp(_bounded(ratio[judged])))
    best = (seen + tau * power).argmax(axis=1)[:, None]
    suggested = np.take_along_axis(votes.label, best, axis=1)[:, 0]
    if information * judged.sum() < _LEAST:  # shuffled labels, rows in one place, or too few
        ratio, rate, information = np.zeros_like(ratio), 0.0, 0.0
    return VoteFit(ratio, rate, information, suggested)


def _noise_rate(ratio: Array) -> tuple[float, float]:
    """η that maximises the mean of log((1 - η) ratio + η), and that mean; it is concave in η."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        rate = (low + high) / 2
        slope = ((1 - ratio) / ((1 - rate) * ratio + rate)).sum()
        low, high = (rate, high) if slope > 0 else (low, rate)
    return low, float(np.log((1 - low) * ratio + low).mean())


def _highest(value: Callable[[float], float], low: float, high: float) -> float:
    """Where a function of one hump is highest, by golden sections."""
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = value(left), value(right)
    for _ in range(_STEPS):
        if at_left > at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = value(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = value(right)
    return (low + high) / 2


def _bounded(logarithm: Array) -> Array:
    bounded: Array = np.clip(logarithm, -700.0, 700.0)
    return bounded


_DECAY = 0.5  # the neighbour of rank r has r^-0.5 votes


@dataclass(frozen=True, eq=False)
class SuspectLabels:
    """What `suspect_labels` found; everything but `rows` and `ranking` is by row.

    `rows` are those whose label is likelier wrong than right, worst first; `ranking` all rows that
    could be judged, worst first. `wrong` is the probability that the label is wrong (0 where it
    could not be judged), `score` what they are ranked by: the log of how much less likely the
    neighbours make the label than chance would. `suggested` is the label the neighbours would give,
    `neighbours` `[N, k]` are they, nearest first, and `judged` says who is not alone in a class.
    `rate` estimates the share of wrong labels among those judged, `information` is what a row's
    neighbours tell about its label, in nats: 0 means nothing, and then no label is suspect.
    """

    rows: Array
    ranking: Array
    wrong: Array
    score: Array
    suggested: Array
    neighbours: Array
    judged: Array
    rate: float
    information: float

    @property
    def expected(self) -> float:
        """How many of the labels judged are wrong, as far as one can tell."""
        return self.rate * float(self.judged.sum())

    def __str__(self) -> str:
        some, all_ = len(self.rows), int(self.judged.sum())
        if self.information <= 0:
            return f"the neighbours of {all_:,} rows say nothing about their labels"
        alone = len(self.judged) - all_
        left = f"; {alone:,} alone in their class, not judged" if alone else ""
        share = f"about {self.expected:,.0f} of {all_:,} labels wrong ({self.rate:.1%})"
        return f"{some:,} suspect; {share}{left}"


def suspect_labels(
    embeddings: ArrayLike,
    labels: ArrayLike,
    *,
    neighbours: int = 10,
    normalize: bool = False,
    max_memory: int | str = "256MB",
    progress: ProgressOption = None,
) -> SuspectLabels:
    """Find the rows whose label their nearest neighbours contradict, and say how many there are.

    Each row is judged by the labels of its `neighbours` nearest other rows, near ones and rare
    labels weighing more, so a class may have any number of modes and any size from two rows up; a
    row alone in its class is not judged. How much the votes are worth, and how many labels are
    wrong, is what makes the labels as they are most likely (`_vote_model`): in an embedding that
    mixes its classes a contradiction means little, and few labels are suspect. Neighbours are exact
    (Euclidean distances, or cosines if `normalize`); `max_memory` bounds the blocks they come from.

    Best on embeddings that were not trained on these labels: a network that has memorised wrong
    labels puts the rows where their labels say.

    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat(["cat", "dog"], 20)
    >>> z = rng.normal(size=(40, 3)) + 9 * (labels == "dog")[:, None]
    >>> labels[3] = "dog"
    >>> found = suspect_labels(z, labels)
    >>> found.rows.tolist(), str(found.suggested[3])
    ([3], 'cat')
    >>> print(found)
    1 suspect; about 2 of 40 labels wrong (5.0%)
    """
    z = points(embeddings, "embeddings", min_rows=3).detach()
    ids, names = class_ids(labels, len(z), min_classes=2)
    k = min(check_int("neighbours", neighbours), len(z) - 1)
    judged = np.bincount(ids)[ids] > 1
    if not judged.any():
        raise InputError("labels", f"{len(z)} labels, no two alike", "a class of two rows or more")
    if normalize:
        check_directions(z, "embeddings")
    budget = parse_bytes(max_memory)
    with progress_reporter(progress, "neighbours") as report:
        lists = near_lists(z, k + 1, sphere=normalize, max_memory=budget, report=report).rows
    near = lists[:, 1:].astype(np.int64)
    fit = fit_votes(count_votes(near, ids, _DECAY), ids, judged)
    wrong = np.where(judged, fit.wrong, 0.0)
    order = np.argsort(np.where(judged, fit.ratio, np.inf), kind="stable")
    ranking = order[: int(judged.sum())]
    return SuspectLabels(
        ranking[wrong[ranking] > 0.5],
        ranking,
        wrong,
        np.where(judged, -fit.ratio, -np.inf),
        names[fit.suggested],
        near,
        judged,
        fit.rate,
        fit.information,
    )
