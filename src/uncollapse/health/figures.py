"""Figures of collapse that need no verdict: rank, neural collapse, thickness bracket."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, as_rows, class_ids, points
from uncollapse._base.check import InputError, check_int
from uncollapse._base.classes import ClassLayout
from uncollapse.distances import binary_scale, pairwise_distances, working_dtype
from uncollapse.geometry import Thickness, class_diameters, diameter, separation, thickness
from uncollapse.health.records import (
    ClassHealth,
    Cosines,
    Health,
    Histogram,
    NearestLabels,
    Norms,
    Reference,
)
from uncollapse.health.verdict import Thresholds, judge
from uncollapse.metrics import (
    anisotropy,
    cdnv,
    effective_rank,
    modes_per_class,
    nc1,
    principal_axes,
)
from uncollapse.metrics.collapse_figures import Spectrum, spectrum

__all__ = [
    "COUNTED",
    "NEIGHBOURS",
    "FineNeighbours",
    "Spectrum",
    "balanced_rows",
    "cdnv",
    "effective_rank",
    "figures",
    "fine_neighbours",
    "measure",
    "modes_kept",
    "nc1",
    "nearest_labels",
    "principal_axes",
    "row_norms",
    "scale_figures",
    "spectrum",
    "spread",
    "thickness_bracket",
    "with_modes",
    "with_structure",
]


# Figures of collapse that need no verdict: rank, neural collapse, thickness bracket.

_EXACT_DIM = 3  # up to here the smallest width is found exactly, and quickly
_EXACT_ROWS = 2048


def thickness_bracket(x: Tensor, found: Spectrum) -> Thickness:
    """Bracket of the smallest width, cheap in any dimension: HNM (9a).

    Exact up to three dimensions and 2048 rows, and when the set is flat. Otherwise from the
    principal axes: below 2·sqrt(λ_min) of the covariance, above the width along the flattest axis.

    `found` is the spectrum of some or all of the rows: a subset is no wider than the set.
    """
    width = x.shape[1]
    if len(x) <= width:
        return Thickness(0.0, 0.0, True, np.eye(1, width)[0])
    if width <= _EXACT_DIM and len(x) <= _EXACT_ROWS:
        return thickness(x)
    if found.axes is None:
        return Thickness(0.0, math.inf, False, np.eye(1, width)[0])
    lower = 2 * float(found.values[-1]) / math.sqrt(found.rows) * (1 - 1e-6)
    direction = found.axes[:, -1]
    towards = torch.from_numpy(np.ascontiguousarray(direction))
    first = x[0].double()
    along = torch.cat([(chunk.double() - first) @ towards for chunk in torch.split(x, 1 << 16)])
    upper = float(along.max() - along.min())
    return Thickness(min(lower, upper), upper, False, direction)


# Figures of scale, cheap enough for every batch: O(N d) and one small product.

_SAFE = (1e-150, 1e150)  # lengths whose squares float64 holds
_CHUNK = 1 << 16  # rows that are float64 at a time
_ROWS = 256  # rows of a batch that its diameter is taken of


def scale_figures(z: Tensor) -> dict[str, Any]:
    """Those fields of `Health` that are about scale; the diameter is that of at most 256 rows.

    >>> scale_figures(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))["diameter"]
    5.0
    """
    x = points(z)
    norms = row_norms(x)
    few = x[:: -(-len(x) // _ROWS)]
    return {
        "n": len(x),
        "diameter": diameter(few),
        "spread": spread(x),
        "centre_norm": float(row_norms(x.mean(0, keepdim=True, dtype=working_dtype(x)))),
        "norms": Norms.of(norms),
        "resolution": torch.finfo(z.dtype).eps * float(norms.max()),
    }


def row_norms(x: Tensor) -> Tensor:
    """Lengths of the rows, in the working dtype; also of rows whose squares it does not hold.

    >>> row_norms(torch.tensor([[3e300, 4e300]], dtype=torch.float64)).tolist()
    [5e+300]
    """
    norms: Tensor = torch.linalg.vector_norm(x, dim=1, dtype=working_dtype(x))
    largest = float(norms.max())
    if _SAFE[0] < largest < _SAFE[1] or not bool(torch.isfinite(x).all()):
        return norms
    scale = binary_scale(float(x.abs().max()))
    lengths: Tensor = torch.linalg.vector_norm(x / scale, dim=1, dtype=working_dtype(x)) * scale
    return lengths


def spread(x: Tensor) -> float:
    """Root mean square distance of two rows, in O(N d): sqrt(2N/(N - 1)) times the deviation.

    >>> spread(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    5.0
    """
    if len(x) < 2:
        return 0.0
    wide, first = working_dtype(x), x[:1].detach().to(working_dtype(x))
    if len(x) <= _CHUNK:  # a batch: its differences are taken once
        apart = x.detach().to(wide) - first
        largest = float(torch.linalg.vector_norm(apart, math.inf))
        if largest == 0.0:
            return 0.0
        squares = ((apart - apart.mean(0)) / largest).square_().sum()
        return largest * math.sqrt(2 * float(squares) / (len(x) - 1))
    chunks = torch.split(x.detach(), _CHUNK)
    # About the first row: equal rows give exact zeros, which a rounded mean does not.
    mean = sum((chunk.to(wide) - first).sum(0) for chunk in chunks) / len(x)
    largest = max(float((chunk.to(wide) - first).abs().max()) for chunk in chunks)
    if largest == 0.0:
        return 0.0
    several = (((chunk.to(wide) - first - mean) / largest).square().sum() for chunk in chunks)
    return largest * math.sqrt(2 * float(sum(several)) / (len(x) - 1))


# Which rows stand for a large set: every class alike, the same rows for the same seed.


def balanced_rows(ids: Array, most: int, rng: np.random.Generator) -> Array:
    """At most `most` rows, ascending, with classes as even as their sizes allow.

    Where there are too many classes for two rows each, whole classes are left out at random.

    >>> ids = np.array([0] * 90 + [1] * 5 + [2] * 5)
    >>> rows = balanced_rows(ids, 12, np.random.default_rng(0))
    >>> np.bincount(ids[rows]).tolist()
    [4, 4, 4]
    """
    if len(ids) <= most:
        return np.arange(len(ids))
    shuffled = rng.permutation(len(ids))
    counts = np.bincount(ids)
    # Classes in random order: the last ones are those left out.
    place = rng.permutation(len(counts))[ids[shuffled]]
    by_class = np.argsort(place, kind="stable")
    starts = np.r_[0, np.cumsum(np.bincount(place))[:-1]]
    rank = np.empty(len(ids), np.int64)
    rank[by_class] = np.arange(len(ids)) - starts[place[by_class]]
    # Pairs first (rank // 2), so that a class that is in at all has two members if it can.
    return np.sort(shuffled[np.lexsort((rank, place, rank // 2))[:most]])


# The structure kept inside classes, which is lost when their modes merge (EPS §4).

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


# How often nearest neighbours share a label, and how often they would if labels were shuffled.

_LABEL_VOTES_TIE = 1e-9  # relative difference of distances that counts as none


def nearest_labels(distance: Array, ids: Array) -> NearestLabels | None:
    """Share of rows whose nearest neighbour has their label; None where nothing can be shared.

    `distance` is square, `ids` are class numbers. Neighbours that tie share the vote. Rows that are
    alone in their class do not count, but may be neighbours.

    `deviation` is exact for shuffled labels: two rows that are nearest to each other, hubs and
    duplicates, which make the votes dependent, all count (the join-count statistic of Cliff & Ord
    1981, for several classes).

    >>> x = np.array([0.0, 1.0, 5.0, 6.5])
    >>> nearest_labels(np.abs(x[:, None] - x), np.array([0, 0, 1, 1])).share
    1.0
    """
    n, counts = len(ids), np.bincount(ids).astype(np.float64)
    rows = int(counts[counts > 1].sum())
    if rows == 0 or counts.max() == n:
        return None
    votes = _votes(distance)
    joined = votes + votes.T
    share = float(votes[ids[:, None] == ids].sum())
    same = [float(_chosen(counts, k).sum()) / _falling(n, k) for k in (2, 3, 4)]
    pairs, triples = same[0], same[1]
    # Two pairs without a row in common: both of one class, or of two.
    two = _chosen(counts, 2)
    apart = same[2] + float(two.sum() ** 2 - (two**2).sum()) / _falling(n, 4)
    alike = float((joined**2).sum()) / 2
    meeting = float((joined.sum(axis=1) ** 2).sum()) - 2 * alike
    second = alike * pairs + meeting * triples + (n**2 - alike - meeting) * apart
    variance = max(0.0, second - (n * pairs) ** 2)
    return NearestLabels(share / rows, n * pairs / rows, math.sqrt(variance) / rows, rows)


def _votes(distance: Array) -> Array:
    """For each row, one vote, divided over its nearest neighbours."""
    others = np.where(np.eye(len(distance), dtype=bool), np.inf, distance)
    nearest = others <= others.min(axis=1, keepdims=True) * (1 + _LABEL_VOTES_TIE)
    votes: Array = nearest / nearest.sum(axis=1, keepdims=True)
    return votes


def _chosen(counts: Array, k: int) -> Array:
    """Ways to take k different members of each class, in order."""
    ways: Array = np.prod([np.maximum(counts - i, 0.0) for i in range(k)], axis=0)
    return ways


def _falling(n: int, k: int) -> float:
    return float(max(math.prod(range(n - k + 1, n + 1)), 1))


# One snapshot of an embedding: every figure of collapse, and what it can and cannot decide.

_BINS = 40
_COSINE_ROWS = 512  # whose 130,000 pairs give the quantiles of the cosine


def measure(
    embeddings: ArrayLike,
    labels: ArrayLike | None = None,
    thresholds: Thresholds | None = None,
    reference: Health | Reference | float | None = None,
    *,
    fine_labels: ArrayLike | None = None,
    before: ArrayLike | None = None,
    sample: int = 2048,
    modes: bool = True,
    seed: int = 0,
    cosine: bool = True,
) -> Health:
    """Measure an embedding and say whether it has collapsed.

    All distances are taken about the centre in float64, so neither the place nor the scale of the
    embedding changes a figure beyond its own rounding, in any dtype. The diameters are exact. What
    would cost N² is measured on `sample` rows, as even over the classes as they allow, chosen by
    `seed`; separation is then an upper bound. `modes=False` leaves out the modes of each class,
    which take the most time and do not enter the verdict. `cosine=False` says that rows are
    compared by Euclidean distance alone, to which a common offset does nothing: only rows of length
    1 are then called a cone.

    **What one snapshot can decide.** That all rows agree to the precision of their dtype, or to
    four digits beside their distance from the origin; that all rows share one direction, or nearly;
    that classes are points; that few axes are used; that neighbours say nothing about labels.
    **What it cannot:** whether a diameter of 2e-5 about the origin is a collapse or a healthy
    embedding in small units: every ratio inside is the same. That takes a scale to compare with:
    `reference` (a healthy earlier `Health`, or its diameter), or `Thresholds(margin=...)`.
    Shrinking and diverging are said only beside a reference. NaN or infinite rows are `diverging`,
    with all figures NaN.

    **Modes inside classes.** Whether they have merged while the classes stayed apart (EPS §4) is
    seen by `fine_labels`, finer classes inside the classes: beside a reference that had them too,
    by what was lost, alone by whether they tell more than chance. Without fine labels it is seen
    beside `before`, the embeddings of the same rows at the start, which are the reference as well
    where none is given.

    >>> z = torch.randn(60, 8, generator=torch.Generator().manual_seed(0))
    >>> labels = torch.arange(60) % 6
    >>> first = measure(z, labels)
    >>> first.verdict, measure(z * 1e-6, labels).verdict
    ('healthy', 'healthy')
    >>> print(measure(z * 1e-3, labels, reference=first))
    network-collapse
      diameter 0.00789: the embedding fell to 0.1 % of its reference scale
    >>> measure(z * 1e-3 + 300, labels).verdict
    'network-collapse'
    >>> measure(z + 30, labels).verdict, measure(z + 30, labels, cosine=False).verdict
    ('cone', 'healthy')
    """
    check_int("sample", sample, 8)
    limits = thresholds or Thresholds()
    if reference is None and before is not None:
        reference = measure(
            before, labels, fine_labels=fine_labels, sample=sample, modes=False, seed=seed
        )
    health = figures(embeddings, labels, limits.margin or 0.0, sample, seed, modes=modes)
    health = with_structure(
        health, embeddings, labels, fine_labels, before, sample=sample, seed=seed
    )
    return judge(health, limits, Reference.of(reference), cosine=cosine)


def figures(
    embeddings: ArrayLike,
    labels: ArrayLike | None,
    margin: float,
    sample: int,
    seed: int = 0,
    *,
    modes: bool = False,
) -> Health:
    """All figures, not yet judged."""
    given = as_rows(embeddings, "embeddings")
    whole = isinstance(embeddings, Tensor) and not embeddings.is_floating_point()
    epsilon = 0.0 if whole else torch.finfo(given.dtype).eps
    if not bool(torch.isfinite(given.detach()).all()):
        return _unknown(*given.shape)
    x = points(given, "embeddings").detach().cpu()
    layout = ClassLayout.of(np.arange(len(x)) if labels is None else labels, len(x))
    part = _Part.of(x, layout, sample, seed)
    size, found = diameter(x), spectrum(part.rows)
    norms = row_norms(x)
    health = Health(
        n=len(x),
        dim=x.shape[1],
        diameter=size,
        spread=spread(x),
        centre_norm=float(row_norms(x.mean(0, keepdim=True, dtype=torch.float64))),
        norms=Norms.of(norms),
        resolution=float(epsilon * norms.max()),
        effective_rank=effective_rank(found),
        axes=principal_axes(found),
        room=min(x.shape[1], len(part.rows) - 1),
        thickness=thickness_bracket(x, found),
        between=_histogram(part.between, size),
        sampled=len(part.rows),
        cosines=_cosines(part.rows),
    )
    if labels is None:
        return health
    health = _with_classes(health, x, layout, part, margin)
    return _with_modes(health, part) if modes else health


@dataclass(frozen=True)
class _Part:
    """The rows that stand for all in what costs N², with their distances."""

    rows: Tensor
    ids: Array
    distance: Array
    same: Array

    @classmethod
    def of(cls, x: Tensor, layout: ClassLayout, most: int, seed: int) -> _Part:
        chosen = balanced_rows(layout.ids, most, np.random.default_rng(seed))
        rows, ids = x[torch.from_numpy(chosen)], layout.ids[chosen]
        return cls(rows, ids, pairwise_distances(rows.double()).numpy(), ids[:, None] == ids)

    @property
    def between(self) -> Array:
        return self.distance[np.triu(~self.same, 1)]

    @property
    def within(self) -> Array:
        return self.distance[np.triu(self.same, 1)]


def _with_classes(
    health: Health, x: Tensor, layout: ClassLayout, part: _Part, margin: float
) -> Health:
    agreement, chance = _agreement(part)
    apart = part.between
    several = len(np.unique(part.ids)) > 1
    separated = separation(part.rows, part.ids).margin if several else None
    residual = _residual_share(part)
    return replace(
        health,
        classes=_classes(
            x, layout, part, health.diameter, float(np.median(apart)) if several else 0.0
        ),
        separation=separated,
        hard_mined_loss=None if separated is None else max(0.0, margin - separated),
        agreement=agreement,
        chance=chance,
        nc1=nc1(part.rows, part.ids) if several else None,
        cdnv=cdnv(part.rows, part.ids) if several else None,
        within_share=residual,
        within=_histogram(part.within, health.diameter),
        nearest=nearest_labels(part.distance, part.ids),
    )


def _classes(
    x: Tensor, layout: ClassLayout, part: _Part, whole: float, apart: float
) -> tuple[ClassHealth, ...]:
    tightness = np.full(len(layout.classes), np.nan)
    order = np.argsort(part.ids, kind="stable")
    numbers, starts = np.unique(part.ids[order], return_index=True)
    for number, members in zip(numbers, np.split(order, starts[1:]), strict=True):
        if len(members) > 1:
            inside = part.distance[np.ix_(members, members)]
            pairs = inside[np.triu_indices(len(members), 1)]
            far = float(np.quantile(pairs, 0.75))
            tightness[number] = far / apart if apart > 0 else (0.0 if far == 0 else np.inf)
    sizes = class_diameters(x, layout.ids).values()
    every = zip(layout.classes.tolist(), layout.counts.tolist(), sizes, tightness, strict=True)
    return tuple(
        ClassHealth(label, count, size, size / whole if whole > 0 else 0.0, float(tight))
        for label, count, size, tight in every
    )


def _with_modes(health: Health, part: _Part) -> Health:
    counted = modes_per_class(part.rows, part.ids)
    known = zip(counted.classes.tolist(), counted.modes.tolist(), strict=True)
    modes = {c: int(count) for c, count in known if not math.isnan(count)}
    classes = (replace(one, modes=modes.get(c)) for c, one in enumerate(health.classes))
    return replace(health, classes=tuple(classes))


def _agreement(part: _Part) -> tuple[float | None, float | None]:
    """Share of rows strictly nearer to their own class than to any other; and that of chance."""
    alone = np.where(np.eye(len(part.ids), dtype=bool), np.inf, part.distance)
    own = np.where(part.same, alone, np.inf).min(axis=1)
    other = np.where(part.same, np.inf, alone).min(axis=1)
    usable = np.isfinite(own) & np.isfinite(other)
    if not usable.any():
        return None, None
    others = (part.same.sum(axis=1)[usable] - 1) / (len(part.ids) - 1)
    return float((own < other)[usable].mean()), float(others.mean())


def _cosines(rows: Tensor) -> Cosines | None:
    if len(rows) < 2:
        return None
    found = anisotropy(rows, quantiles=(0.1, 0.5, 0.9), sample=_COSINE_ROWS)
    return Cosines(found.mean, *found.quantiles.values())


def _residual_share(part: _Part) -> float:
    """Share of the variance that lies inside the classes, from squared distances alone."""
    squares = (part.distance / (part.distance.max() or 1.0)) ** 2
    counts = part.same.sum(axis=1)
    inside = float(((squares * part.same).sum(axis=1) / counts).sum())
    total = float(squares.sum()) / len(squares)
    return inside / total if total > 0 else 0.0


def _histogram(distances: Array, largest: float) -> Histogram:
    counts, edges = np.histogram(distances, _BINS, (0.0, (largest or 1.0) * (1 + 1e-9)))
    return Histogram(tuple(edges.tolist()), tuple(counts.tolist()))


def _unknown(n: int, dim: int) -> Health:
    """The health of rows that are not numbers."""
    nan = math.nan
    nothing = Thickness(nan, nan, False, np.zeros(dim))
    norms = Norms(nan, nan, nan, nan)
    empty = Histogram((0.0, 1.0), (0,))
    return Health(n, dim, nan, nan, nan, norms, nan, nan, 0, 0, nothing, empty, 0)


# The modes that classes keep, counted by hidden finer labels where there are any: EPS §5.1.

COUNTED = 20  # classes whose modes are counted without fine labels, which takes a while


def with_modes(
    health: Health, embeddings: Array, labels: Array, fine_labels: Array | None, *, seed: int = 0
) -> Health:
    """The same health with the modes each class keeps (`metrics.modes_per_class`).

    Counted by the fine labels if there are any; without, only for up to twenty classes.

    >>> import numpy as np
    >>> from uncollapse.health import measure
    >>> z = np.array([[0.0], [0.1], [4.0], [4.1], [9.0], [9.1]])
    >>> labels, fine = np.array([0, 0, 0, 0, 1, 1]), np.array([0, 0, 1, 1, 2, 2])
    >>> with_modes(measure(z, labels), z, labels, fine).modes_per_class
    {0: 2, 1: 1}
    """
    if not math.isfinite(health.diameter) or not health.classes:
        return health
    if fine_labels is None and len(health.classes) > COUNTED:
        return health
    found = modes_per_class(embeddings, labels, fine_labels, seed=seed)
    counts = dict(zip(found.classes.tolist(), found.modes.tolist(), strict=True))
    known = {label: int(count) for label, count in counts.items() if not math.isnan(count)}
    classes = tuple(replace(one, modes=known.get(one.label)) for one in health.classes)
    return replace(health, classes=classes)
