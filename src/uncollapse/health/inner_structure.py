"""The structure kept inside classes, which is lost when their modes merge (EPS §4).

By fine labels, where there are some; else by the neighbourhoods that rows had at the start.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, as_rows, class_ids, points
from uncollapse._base.check import InputError
from uncollapse._base.classes import ClassLayout
from uncollapse.distances import binary_scale, pairwise_distances
from uncollapse.health.records import Health
from uncollapse.health.sample import balanced_rows

__all__ = ["NEIGHBOURS", "FineNeighbours", "fine_neighbours", "modes_kept", "with_structure"]

NEIGHBOURS = 5  # of a row at the start, inside its class
_ROOM = 3  # a class counts with at least this many neighbourhoods' worth of rows
_TIE = 2.0**-40  # relative: equal distances that rounding tells apart
_FLAT = 0.05  # a start whose neighbourhoods hold less of a class has no modes to lose


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

    `before` are the embeddings of the same rows at the start. For each row the mean over itself and
    its `k` nearest of its class **at the start**; the share of the variance inside classes that
    these means hold now, above that of random rows (1 / (k + 1)), over the same at the start. Where
    modes merge, the old neighbours of a row are strewn over its class, and their means all alike.
    It is free of scale and rotation; above 1 where the modes stand out more than they did.

    None where that cannot be said: no class of 3 (k + 1) rows, or a start whose neighbourhoods hold
    no more than random rows would.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> mode, noise = 9 * rng.normal(size=(4, 8)), rng.normal(size=(80, 8))
    >>> start = mode[np.arange(80) % 4] + noise
    >>> [round(modes_kept(start, now, [0] * 80), 1) for now in (0.1 * start, noise)]
    [1.0, 0.1]
    """
    then, now = (points(rows).detach().cpu() for rows in (before, embeddings))
    if len(then) != len(now):
        raise InputError("before", f"{len(then)} rows", f"{len(now)}: those of `embeddings`")
    layout = ClassLayout.of(labels, len(now))
    sums = [[0.0, 0.0], [0.0, 0.0]]  # at the start, now; held by the means, in all
    scales = [binary_scale(float(rows.abs().max())) or 1.0 for rows in (then, now)]
    for c in np.flatnonzero(layout.counts >= _ROOM * (k + 1)):
        rows = torch.from_numpy(layout.members(int(c)))
        first = then[rows].double() / scales[0]
        near = _nearest(first, k)
        for place, own in enumerate((first, now[rows].double() / scales[1])):
            held, total = _held(own, near)
            sums[place] = [sums[place][0] + held, sums[place][1] + total]
    start, left = (_above_chance(held, total, k) for held, total in sums)
    return None if not start > _FLAT else max(left, 0.0) / start


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


def _nearest(rows: Tensor, k: int) -> Array:
    distance = pairwise_distances(rows).numpy()
    np.fill_diagonal(distance, np.inf)
    near: Array = np.argsort(distance, axis=1, kind="stable")[:, :k]
    return near


def _held(rows: Tensor, near: Array) -> tuple[float, float]:
    """Sums of squares about the class mean: of the means of neighbourhoods, and of the rows."""
    own = rows - rows.mean(0)
    means = (own + own[torch.from_numpy(near)].sum(1)) / (1 + near.shape[1])
    about = means - means.mean(0)
    return float(about.square().sum()), float(own.square().sum())


def _above_chance(held: float, total: float, k: int) -> float:
    """The share that means hold, above that of random rows; 0 for classes that are points."""
    chance = 1 / (k + 1)
    return (held / total - chance) / (1 - chance) if total > 0 else 0.0
