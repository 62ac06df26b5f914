"""The structure kept inside classes, which is lost when their modes merge (EPS §4).

By fine labels, where there are some; else by the neighbourhoods that rows had at the start.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from uncollapse._base.arrays import Array, ArrayLike, as_rows, class_ids, points
from uncollapse._base.check import InputError
from uncollapse._base.classes import ClassLayout
from uncollapse.distances import pairwise_distances
from uncollapse.health.records import Health
from uncollapse.health.sample import balanced_rows

__all__ = ["NEIGHBOURS", "FineNeighbours", "fine_neighbours", "modes_kept", "with_structure"]

NEIGHBOURS = 5  # of a row at the start, inside its class
_ROOM = 3  # a class counts with at least this many neighbourhoods' worth of rows
_TIE = 2.0**-40  # relative: equal distances that rounding tells apart


class FineNeighbours(NamedTuple):
    """How often a row's nearest neighbour inside its class shares its fine label; and chance.

    `rows` could be asked: their class has several fine labels, their fine label another row.
    """

    agreement: float
    chance: float
    rows: int


def fine_neighbours(
    embeddings: ArrayLike, labels: ArrayLike, fine_labels: ArrayLike
) -> FineNeighbours | None:
    """Agreement of neighbours inside classes by fine label; None where no row can be asked.

    A tie counts as another fine label. A fine label names a fine class inside its class only. What
    is kept of a start is (agreement - chance) / (1 - chance), over the same at the start.

    >>> z = [[0.0], [0.1], [5.0], [5.1]]
    >>> fine_neighbours(z, [0, 0, 0, 0], ["a", "a", "b", "b"])
    FineNeighbours(agreement=1.0, chance=0.3333333333333333, rows=4)
    """
    x = points(embeddings, "embeddings").detach().cpu()
    layout = ClassLayout.of(labels, len(x))
    fine, _ = class_ids(fine_labels, len(x), "fine_labels")
    hits, chances = [np.zeros(0, bool)], [np.zeros(0)]
    for c in range(len(layout.classes)):
        rows = layout.members(c)
        same = fine[rows][:, None] == fine[rows]
        asked = same.sum(axis=1) > 1
        if same.all() or not asked.any():
            continue
        distance = pairwise_distances(x[torch.from_numpy(rows)].double()).numpy()
        np.fill_diagonal(distance, np.inf)
        own, other = (np.where(who, distance, np.inf).min(axis=1) for who in (same, ~same))
        hits.append((own < (1 - _TIE) * other)[asked])
        chances.append((same.sum(axis=1)[asked] - 1) / (len(rows) - 1))
    hit, chance = np.concatenate(hits), np.concatenate(chances)
    return FineNeighbours(float(hit.mean()), float(chance.mean()), len(hit)) if len(hit) else None


def modes_kept(
    before: ArrayLike, embeddings: ArrayLike, labels: ArrayLike, *, k: int = NEIGHBOURS
) -> float | None:
    """How much of the neighbourhoods of the start is left inside classes: 1 all, 0 none.

    `before` are the embeddings of the same rows at the start. How often one of the `k` rows of its
    class that were nearest to a row **at the start** is nearer to it now than another row of the
    class (a tie is half), above the half that chance gives, over the same at the start. Where modes
    merge, old neighbours are strewn over the class. It is free of scale and rotation, and does not
    mind neighbours that change places. None without a class of 3 (k + 1) rows that are not all
    equal at the start.

    **What it cannot tell:** merged modes from others that took their place. A network whose start
    saw little of the samples loses those neighbourhoods by learning better ones.

    >>> rng = np.random.default_rng(0)
    >>> start = 9 * rng.normal(size=(4, 8))[np.arange(80) % 4] + rng.normal(size=(80, 8))
    >>> merged = rng.normal(size=(80, 8))
    >>> [modes_kept(start, now, [0] * 80) > 0.25 for now in (0.1 * start, merged)]
    [True, False]
    """
    then, now = (points(rows).detach().cpu() for rows in (before, embeddings))
    if len(then) != len(now):
        raise InputError("before", f"{len(then)} rows", f"{len(now)}: those of `embeddings`")
    layout = ClassLayout.of(labels, len(now))
    nearer: list[list[float]] = [[], []]  # at the start, now
    for c in np.flatnonzero(layout.counts >= _ROOM * (k + 1)):
        rows = torch.from_numpy(layout.members(int(c)))
        first, last = (pairwise_distances(z[rows].double()).numpy() for z in (then, now))
        if first.max() > 0:
            near = _nearest(first, k)
            for found, distance in zip(nearer, (first, last), strict=True):
                found += _share_farther(distance, near).tolist()
    if not nearer[0]:
        return None
    start, left = (2 * float(np.mean(found)) - 1 for found in nearer)
    return max(left, 0.0) / start


def with_structure(
    health: Health,
    embeddings: ArrayLike,
    labels: ArrayLike | None,
    fine_labels: ArrayLike | None = None,
    before: ArrayLike | None = None,
    *,
    sample: int = 2048,
    seed: int = 0,
) -> Health:
    """The same health with `fine_agreement`, `fine_chance`, `fine_rows` and `modes_kept`.

    On at most `sample` rows, as even over the classes as they allow. Without labels, or for rows
    that are not finite, the health is as it was.
    """
    if labels is None or not math.isfinite(health.diameter):
        return health
    z = as_rows(embeddings, "embeddings").detach().cpu()
    ids, _ = class_ids(labels, len(z))
    chosen = balanced_rows(ids, sample, np.random.default_rng(seed))
    if fine_labels is not None:
        fine, _ = class_ids(fine_labels, len(z), "fine_labels")
        found = fine_neighbours(z[chosen], ids[chosen], fine[chosen])
        if found is not None:
            health = replace(
                health,
                fine_agreement=found.agreement,
                fine_chance=found.chance,
                fine_rows=found.rows,
            )
    if before is not None:
        start = as_rows(before, "before").detach().cpu()
        if len(start) != len(z):
            raise InputError("before", f"{len(start)} rows", f"{len(z)}: those of `embeddings`")
        if bool(torch.isfinite(start).all()):
            kept = modes_kept(start[chosen], z[chosen], ids[chosen])
            health = replace(health, modes_kept=kept)
    return health


def _nearest(distance: Array, k: int) -> Array:
    alone = np.where(np.eye(len(distance), dtype=bool), np.inf, distance)
    near: Array = np.argsort(alone, axis=1, kind="stable")[:, :k]
    return near


def _share_farther(distance: Array, near: Array) -> Array:
    """For each row the share of other rows farther than its `near` ones, their mean; ties half."""
    shares: Array = np.zeros(len(near))
    for column in near.T:
        own = np.take_along_axis(distance, column[:, None], 1)
        farther = (distance > own).sum(axis=1)
        ties = (distance == own).sum(axis=1) - 1 - (own[:, 0] == 0)  # less itself and the row
        farther_or_tied = farther + ties / 2
        shares += farther_or_tied / (len(distance) - 2)
    mean: Array = shares / near.shape[1]
    return mean
