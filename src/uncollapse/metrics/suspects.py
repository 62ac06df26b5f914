"""Labels that the embedding contradicts: how many, which, and what they should be."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from uncollapse._base.arrays import Array, ArrayLike, class_ids
from uncollapse._base.check import InputError, check_bool, check_int
from uncollapse._base.progress import ProgressOption
from uncollapse._base.result import Card, Shown
from uncollapse._base.table import percent
from uncollapse.metrics.evaluation import sample_words
from uncollapse.metrics.nearest_rows import nearest
from uncollapse.metrics.ranking import check_directions, parse_bytes, ranked_points

_ROWS = 4096  # counted at a time
# Of τ, which is searched for by its logarithm. Below 0.4 many ambiguous rows of few classes would
# explain away the few rows that all of their neighbours contradict.
_RANGE = (math.log(0.4), math.log(10.0))
_GRID = 16  # values that are tried first: the likelihood may have more than one hump
_PRECISION = 1e-6  # of log τ
_LEAST = 10.0  # log-likelihood that neighbours must add in all to count as knowing anything
_HALVINGS = 40
_DECAY = 0.5  # the neighbour of rank r has r^-0.5 votes
_UNLIKELY = 0.05  # a label that is less likely wrong is no candidate
_SURE = 0.999  # the largest share of neighbours that counts as sharing the class


@dataclass(frozen=True, eq=False)
class Votes:
    """`count[i, j]` votes for class `label[i, j]`, if `first[i, j]`: each class is named once.

    `own` `[N]` are those for the row's own label, `agreement` the mean share of neighbours with it,
    `share` that of each class in all rows.
    """

    label: Array
    count: Array
    first: Array
    own: Array
    share: Array
    agreement: float


def count_votes(near: Array, ids: Array, decay: float, rows: Array | slice = slice(None)) -> Votes:
    """Votes of the neighbours `near` `[N, k]` of `rows`; that of rank r weighs r^-decay.

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
    agrees = label == ids[rows, None]
    own = np.where(agrees, weight, 0.0).sum(axis=1)
    return Votes(label, count, first, own, np.bincount(ids) / len(ids), float(agrees.mean()))


def fit_votes(votes: Votes, ids: Array, judged: Array) -> tuple[Array, float, float, Array]:
    """Fit τ and η to the labels of the `judged` rows by maximum likelihood.

    Returns the ratio of each row, the log of how much likelier than chance its neighbours make its
    label; η, the share of labels that owe nothing to their neighbours; the mean log-likelihood that
    neighbours add, 0 where that is no more than chance; and the likeliest class of each row. Rows
    that are not judged still vote, and get a class.
    """
    from scipy.optimize import minimize_scalar  # which takes longer to load than all of metrics

    share = votes.share
    chance = float((share**2).sum())
    same = min(max((votes.agreement - chance) / (1 - chance), 0.0), _SURE)
    weight = np.log1p(same / (1 - same) / share)  # of a vote for each class
    seen = np.where(votes.first, np.log(share[votes.label]), -np.inf)
    power = weight[votes.label] * votes.count
    own = weight[ids] * votes.own
    with np.errstate(divide="ignore"):
        unseen = np.log(np.maximum(1 - np.exp(seen).sum(axis=1), 0.0))  # classes without a vote

    def ratios(tau: float) -> Array:
        top = seen + tau * power
        high = np.maximum(top.max(axis=1), unseen)
        total = np.exp(top - high[:, None]).sum(axis=1) + np.exp(unseen - high)
        return np.asarray(tau * own - high - np.log(total))

    def misfit(log_tau: float) -> float:
        return -_noise_rate(_exp(ratios(math.exp(log_tau))[judged]))[1]

    grid = np.linspace(*_RANGE, _GRID).tolist()
    best = int(np.argmin([misfit(log_tau) for log_tau in grid]))
    around = grid[max(best - 1, 0)], grid[min(best + 1, _GRID - 1)]
    options = {"xatol": _PRECISION}
    tau = math.exp(minimize_scalar(misfit, bounds=around, method="bounded", options=options).x)
    ratio = ratios(tau)
    rate, information = _noise_rate(_exp(ratio[judged]))
    suggested = votes.label[np.arange(len(ids)), (seen + tau * power).argmax(axis=1)]
    if information * judged.sum() < _LEAST:  # shuffled labels, rows in one place, or too few
        ratio, rate, information = np.zeros_like(ratio), 0.0, 0.0
    return ratio, rate, information, suggested


def _noise_rate(ratio: Array) -> tuple[float, float]:
    """η that maximises the mean of log((1 - η) ratio + η), and that mean; it is concave in η."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        rate = (low + high) / 2
        slope = ((1 - ratio) / ((1 - rate) * ratio + rate)).sum()
        low, high = (rate, high) if slope > 0 else (low, rate)
    return low, float(np.log((1 - low) * ratio + low).mean())


def _exp(logarithm: Array) -> Array:
    """The exponential, clipped to the range of float64."""
    return np.asarray(np.exp(np.clip(logarithm, -700.0, 700.0)))


@dataclass(frozen=True, eq=False, repr=False)
class SuspectLabels(Shown):
    """The suspect rows, and for every row how likely its label is wrong.

    `rows` are those whose label is likelier wrong than right, worst first; `candidates` those that
    follow, down to the estimated number of wrong labels, if `wrong` is at least 0.05; `ranking` all
    rows that could be judged, worst first. The other arrays have an entry per row: `wrong` is the
    probability that the label is wrong (0 where it could not be judged), `score` what they are
    ranked by: the log of how much less likely the neighbours make the label than chance would.
    `suggested` is the label the neighbours would give, `neighbours` `[N, k]` are their rows,
    nearest first, and `judged` is False for a row alone in its class. `rate` estimates the share of
    wrong labels among those judged, `information` is what a row's neighbours tell about its label,
    in nats: 0 means nothing, and then no label is suspect. Only `sampled` rows were looked at: the
    others are not judged, and keep their labels in `suggested`; estimates are of the sample.
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
    sampled: int

    @property
    def candidates(self) -> Array:
        """The rows that follow the suspect ones, down to the estimated number of wrong labels."""
        following = self.ranking[len(self.rows) : round(self.expected)]
        return following[self.wrong[following] >= _UNLIKELY]

    @property
    def listed(self) -> dict[int, str]:
        """What suspects and candidates are called, by row, worst first."""
        names = dict.fromkeys(self.rows.tolist(), "suspect")
        return names | dict.fromkeys(self.candidates.tolist(), "candidate")

    @property
    def expected(self) -> float:
        """Estimated number of wrong labels among those judged."""
        return self.rate * float(self.judged.sum())

    def card(self) -> Card:
        """How many, and the worst five."""
        marks = {"suspect": "", "candidate": " (candidate)"}
        first = list(self.listed.items())[:5]
        worst = [f"row {row}: rather {self.suggested[row]}{marks[kind]}" for row, kind in first]
        return Card(str(self), worst, "warn" if worst else "", shares={"wrong labels": self.rate})

    def __str__(self) -> str:
        judged, total = int(self.judged.sum()), len(self.judged)
        over = f"; on {sample_words(self.sampled, total)}" * (self.sampled < total)
        if self.information <= 0:
            return f"the neighbours of {judged:,} rows say nothing about their labels{over}"
        alone = self.sampled - judged
        left_out = f"; {alone:,} alone in their class, not judged" if alone else ""
        wrong = round(self.expected)
        share = f"about {wrong:,} of {judged:,} labels wrong ({percent(self.rate)})"
        kinds = {"suspect": self.rows, "candidate": self.candidates}
        counts = [f"{len(rows):,} {kind}" for kind, rows in kinds.items() if len(rows)]
        among = {kind: round(float(self.wrong[rows].sum())) for kind, rows in kinds.items()}
        among["other"] = wrong - sum(among.values())
        where = [f"{count:,} {kind}" for kind, count in among.items() if count > 0]
        share += f": {', '.join(where)}" * bool(where)
        return f"{', '.join(counts) or '0 suspect'}; {share}{left_out}{over}"


def suspect_labels(
    embeddings: ArrayLike,
    labels: ArrayLike,
    *,
    neighbours: int = 10,
    normalize: bool = False,
    max_rows: int | None = 50_000,
    max_memory: int | str | None = None,
    progress: ProgressOption = None,
) -> SuspectLabels:
    """Find the rows whose label their nearest neighbours contradict, and say how many there are.

    Each row is judged by the labels of its `neighbours` nearest other rows, near ones and rare
    labels weighing more, so a class may have any number of modes and any size from two rows up; a
    row alone in its class is not judged. How much the votes are worth, and how many labels are
    wrong, is what makes the labels as they are most likely (`fit_votes`): in an embedding that
    mixes its classes a contradiction means little, and few labels are suspect. Neighbours are exact
    (Euclidean distances, or cosines if `normalize`). Of more than `max_rows` rows a sample of so
    many, with its share of each class, is judged by its neighbours among all. `max_memory` bounds
    the copy of the rows that is kept, by default 1 GB.

    Best on embeddings that were not trained on these labels: a network that has memorised wrong
    labels puts the rows where their labels say.

    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat(["cat", "dog"], 20)
    >>> z = rng.normal(size=(40, 3)) + 9 * (labels == "dog")[:, None]
    >>> labels[3] = "dog"
    >>> suspects = suspect_labels(z, labels)
    >>> suspects.rows.tolist(), str(suspects.suggested[3])
    ([3], 'cat')
    >>> print(suspects)
    1 suspect; about 2 of 40 labels wrong (5.01\N{NO-BREAK SPACE}%): 1 suspect, 1 other
    """
    z = ranked_points(embeddings, "embeddings", min_rows=3)
    ids, names = class_ids(labels, len(z), min_classes=2)
    k = min(check_int("neighbours", neighbours), len(z) - 1)
    rows = _spread_rows(ids, max_rows)
    several = np.bincount(ids)[ids[rows]] > 1
    if not several.any():
        raise InputError("labels", f"{len(z)} different labels", "a class of two rows or more")
    if check_bool("normalize", normalize):
        check_directions(z, names=["embeddings"])
    asked, budget = torch.from_numpy(rows), parse_bytes(max_memory)
    some = z if len(rows) == len(z) else z[asked.to(z.device)]
    hits = nearest(some, z, k, asked, normalize=normalize, max_memory=budget, progress=progress)
    near = hits.rows.cpu().numpy()
    votes = count_votes(near, ids, _DECAY, rows)
    ratio, rate, information, suggested = fit_votes(votes, ids[rows], several)
    # P(the label is not from its neighbours | all labels).
    doubt = np.where(several, rate / (rate + (1 - rate) * _exp(ratio)), 0.0)
    wrong, score = np.zeros(len(z)), np.full(len(z), -np.inf)
    judged, given, lists = np.zeros(len(z), bool), ids.copy(), np.zeros((len(z), k), np.int64)
    wrong[rows], score[rows], judged[rows] = doubt, np.where(several, -ratio, -np.inf), several
    given[rows], lists[rows] = suggested, near
    ranking = np.argsort(-score, kind="stable")[: several.sum()]
    suspect = ranking[wrong[ranking] > 0.5]
    return SuspectLabels(
        suspect, ranking, wrong, score, names[given], lists, judged, rate, information, len(rows)
    )


def _spread_rows(ids: Array, most: int | None) -> Array:
    """All rows, or `most` drawn from more, in which each class has its share; ascending."""
    if most is None or len(ids) <= check_int("max_rows", most, 3):
        return np.arange(len(ids))
    by_class = np.lexsort((np.random.default_rng(0).random(len(ids)), ids))
    return np.sort(by_class[np.arange(most) * len(ids) // most])
