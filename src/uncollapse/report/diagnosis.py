"""Diagnose any embedding: a verdict in words, and one page that shows why."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from uncollapse._base.arrays import Array, ArrayLike, as_rows, class_ids
from uncollapse._base.check import check_int
from uncollapse.charts.numbers import percent
from uncollapse.health import Health, Reference, RunSettings, Thresholds, measure
from uncollapse.health.advice import advise
from uncollapse.health.fine_modes import COUNTED, with_modes
from uncollapse.health.sample import balanced_rows
from uncollapse.health.statistics import spectrum
from uncollapse.report.cosine_effects import CONE_ROWS, ConeEffects, cone_effects
from uncollapse.report.diagnosis_page import make_diagnosis_page
from uncollapse.report.neighbours import Neighbourhood, neighbourhood
from uncollapse.report.page import Page
from uncollapse.report.pictures import Images, check_images
from uncollapse.report.projection import project
from uncollapse.report.scores import Scores, score

__all__ = ["MAX_ROWS", "Diagnosis", "diagnose"]

MAX_ROWS = 30_000  # rows of 256 dimensions that one core scores in about a minute


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What was found; prints as a short text, `save` writes the page.

    `health` holds every figure, `scores` retrieval and clustering by each kind of labels (on
    `scored` rows), `shares` the share of the variance on each axis, `plane` the map (by
    t-SNE if `tsne`) and `plane_rows` the rows on it. `compared_with` says what the reference is,
    where that is known, `split` what the rows are of; `cone` what a cone does to searches by
    cosine, where the verdict is that.
    """

    title: str
    health: Health
    scores: tuple[Scores, ...]
    scored: int
    shares: Array
    plane: Array
    plane_rows: Array
    tsne: bool
    labels: Array | None
    fine_labels: Array | None
    names: Array | None
    images: Images | None
    neighbourhood: Neighbourhood | None
    compared_with: str = ""
    split: str = ""
    cone: ConeEffects | None = None

    @property
    def verdict(self) -> str:
        """One of `uncollapse.health.VERDICTS`, such as `healthy` or `class-collapse`."""
        return self.health.verdict

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why, in plain words with the numbers."""
        return self.health.reasons

    @property
    def scored_rows(self) -> str:
        """How many rows the scores are of, in words."""
        of = f" of {self.split}" * bool(self.split)
        if self.scored == self.health.n:
            return f"all {self.scored:,} rows{of}"
        return f"{self.scored:,} of {self.health.n:,} rows{of}, the limit"

    def page(self) -> Page:
        """The page, to add to or to render."""
        return make_diagnosis_page(self)

    def save(self, path: str | Path) -> Path:
        """Write the page as one HTML file that needs no network."""
        return self.page().save(path)

    def __str__(self) -> str:
        lines = [str(self.health)]
        if self.compared_with:
            lines.append(f"  reference: {self.compared_with}")
        for one in self.scores:
            numbers = ", ".join(f"{name} {percent(value)}" for name, value in one.values.items())
            lines.append(f"  by {one.kind}, on {self.scored_rows}: {numbers}")
        if self.cone is not None:
            lines += [f"  {line}" for line in str(self.cone).splitlines()]
        return "\n".join(lines)


def diagnose(
    embeddings: ArrayLike,
    labels: ArrayLike | None = None,
    fine_labels: ArrayLike | None = None,
    images: Images | None = None,
    *,
    names: ArrayLike | None = None,
    title: str = "Embedding diagnosis",
    reference: Health | Reference | float | None = None,
    before: ArrayLike | None = None,
    thresholds: Thresholds | None = None,
    tsne: bool = False,
    max_rows: int = MAX_ROWS,
    map_rows: int = 2_000,
    seed: int = 0,
    modes: bool = True,
    cosine: bool = True,
    settings: RunSettings | None = None,
) -> Diagnosis:
    """Measure embeddings of any origin, `[N, dim]`, and say whether and how they have collapsed.

    `labels` and `fine_labels` are integers or strings, one a row. `images` (arrays, tensors, paths
    or Pillow images, one a row) are shown as nearest neighbours; `names` stand in where there are
    none. `reference` is a healthy earlier state or its diameter: without it, whether the scale is
    small cannot be decided (see `uncollapse.health`). `before`, the embeddings of the same rows at
    the start, shows whether the modes inside classes have merged. Retrieval and clustering use all
    rows up to `max_rows`, beyond that so many with classes as even as they allow; the map
    `map_rows`. Text and page say how many beside the figures. The verdict looks at all rows.
    `modes=False` leaves out the modes of each class, which take the most time. `cosine=False` says
    that rows are compared by Euclidean distance alone (see `measure`). `settings` are those of the
    training, where they are known: the advice is for them.

    >>> import torch
    >>> z = torch.randn(60, 8, generator=torch.Generator().manual_seed(0))
    >>> found = diagnose(z, torch.arange(60) % 6)
    >>> found.verdict, found.scores[0].kind
    ('healthy', 'label')
    >>> diagnose(torch.ones(9, 2)).reasons
    ('all embeddings are equal',)
    """
    z = as_rows(embeddings, "embeddings").detach().cpu()
    check_int("max_rows", max_rows, 8)
    check_int("map_rows", map_rows, 8)
    coarse, fine = _labels(labels, len(z), "labels"), _labels(fine_labels, len(z), "fine_labels")
    # Counted below, on more rows, where there are few classes or fine labels.
    many = fine is None and coarse is not None and len(np.unique(coarse)) > COUNTED
    counted = modes and many
    health = measure(
        z,
        coarse,
        thresholds,
        reference,
        fine_labels=fine,
        before=before,
        modes=counted,
        seed=seed,
        cosine=cosine,
    )
    health = replace(health, advice=advise(health, settings or RunSettings()))
    finite = math.isfinite(health.diameter)
    wide = z.double().numpy()
    ids = _ids(coarse if coarse is not None else fine, len(z))
    rows = balanced_rows(ids, max_rows, np.random.default_rng(seed))
    on_map = balanced_rows(ids, map_rows, np.random.default_rng(seed))
    if coarse is not None and modes:
        some = None if fine is None else fine[rows]
        health = with_modes(health, wide[rows], coarse[rows], some, seed=seed)
    kinds = {"label": coarse, "fine label": fine}
    enough = finite and len(z) > 2
    is_cone = enough and health.verdict == "cone"
    return Diagnosis(
        title=title,
        health=health,
        scores=tuple(
            score(wide[rows], found[rows], kind, seed=seed)
            for kind, found in kinds.items()
            if found is not None and enough and len(np.unique(found)) > 1
        ),
        scored=len(rows),
        shares=spectrum(wide[rows]).shares if enough else np.zeros(0),
        plane=project(wide[on_map], tsne=tsne, seed=seed) if finite else np.zeros((0, 2)),
        plane_rows=on_map,
        tsne=tsne,
        labels=coarse,
        fine_labels=fine,
        names=None if names is None else _labels(names, len(z), "names"),
        images=None if images is None else check_images(images, len(z)),
        neighbourhood=_neighbourhood(wide, coarse, fine, seed) if enough else None,
        cone=_cone(wide, coarse, ids, seed) if is_cone else None,
    )


def _cone(z: Array, labels: Array | None, ids: Array, seed: int) -> ConeEffects:
    rows = balanced_rows(ids, CONE_ROWS, np.random.default_rng(seed))
    return cone_effects(z[rows], None if labels is None else labels[rows], of=len(z))


def _neighbourhood(z: Array, coarse: Array | None, fine: Array | None, seed: int) -> Neighbourhood:
    """Queries spread over the finest labels there are, judged by the coarse ones."""
    found = neighbourhood(z, coarse if fine is None else fine, seed=seed)
    return found if coarse is None else found.by(coarse)


def _labels(labels: ArrayLike | None, n: int, name: str) -> Array | None:
    if labels is None:
        return None
    ids, classes = class_ids(labels, n, name)
    found: Array = classes[ids]
    return found


def _ids(labels: Array | None, n: int) -> Array:
    """Class numbers; without labels one class, so that rows are drawn evenly from all."""
    return np.zeros(n, np.int64) if labels is None else np.unique(labels, return_inverse=True)[1]
