"""One snapshot of an embedding: every figure of collapse, and what it can and cannot decide."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from uncollapse._base.arrays import Array, ArrayLike, as_rows, points
from uncollapse._base.check import check_int
from uncollapse._base.classes import ClassLayout
from uncollapse.distances import pairwise_distances
from uncollapse.geometry import Thickness, class_diameters, diameter, separation
from uncollapse.health.inner_structure import with_structure
from uncollapse.health.label_votes import nearest_labels
from uncollapse.health.records import ClassHealth, Cosines, Health, Histogram, Norms, Reference
from uncollapse.health.sample import balanced_rows
from uncollapse.health.scale import row_norms, spread
from uncollapse.health.statistics import (
    cdnv,
    effective_rank,
    nc1,
    principal_axes,
    spectrum,
    thickness_bracket,
)
from uncollapse.health.thresholds import Thresholds
from uncollapse.health.verdict import judge
from uncollapse.metrics import anisotropy, modes_per_class

__all__ = ["figures", "measure"]

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
