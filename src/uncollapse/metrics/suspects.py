"""Labels that the embedding contradicts: how many, which, and what they should be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from uncollapse._base.arrays import Array, ArrayLike, class_ids, points
from uncollapse._base.check import InputError, check_int
from uncollapse._base.progress import ProgressOption, progress_reporter
from uncollapse.metrics._near_lists import near_lists
from uncollapse.metrics._ranks import parse_bytes
from uncollapse.metrics._vote_model import count_votes, fit_votes

__all__ = ["SuspectLabels", "suspect_labels"]

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
    if normalize and not bool((z != 0).any(dim=1).all()):
        row = int((z == 0).all(dim=1).nonzero()[0])
        raise InputError("embeddings", f"zeros only in row {row}", "rows that have a norm")
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
