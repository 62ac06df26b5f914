"""Diagnose any embedding: a verdict in words, and one page that shows why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from uncollapse._base.arrays import Array, ArrayLike, as_rows, class_ids
from uncollapse._base.check import check_int
from uncollapse._base.table import percent
from uncollapse.health import Health, Reference, RunSettings, Thresholds, measure
from uncollapse.health.advice import advise
from uncollapse.health.figures import balanced_rows, with_modes
from uncollapse.health.verdict import cosine_text
from uncollapse.metrics import clustering, retrieval
from uncollapse.metrics.collapse import spectrum
from uncollapse.report.neighbours import Images, Neighbourhood, check_images, neighbourhood
from uncollapse.report.page import Page
from uncollapse.report.projection import project

if TYPE_CHECKING:
    from uncollapse.training import Run

__all__ = [
    "CONE_ROWS",
    "MAX_ROWS",
    "MULTIPLIER",
    "ConeEffects",
    "Diagnosis",
    "Scores",
    "Way",
    "cone_effects",
    "diagnose",
    "diagnose_run",
    "score",
]


# Retrieval and clustering of an embedding: EPS §5.

MULTIPLIER = 10  # clusters a class for NMI+, as in EPS table 2


@dataclass(frozen=True)
class Scores:
    """How well neighbours and clusters agree with one kind of labels; values by name."""

    kind: str
    values: Mapping[str, float]


def score(embeddings: Array, labels: Array, kind: str, *, seed: int = 0) -> Scores:
    """R@1, 2, 4, 8, MAP@R, NMI, and NMI+ with ten clusters a class where the rows allow it.

    >>> rows = np.array([[0.0], [0.1], [9.0], [9.2]])
    >>> score(rows, np.array([0, 0, 1, 1]), "label").values["R@1"]
    1.0
    """
    found = retrieval(embeddings, labels, ks=(1, 2, 4, 8), progress=False)
    values = {f"R@{k}": v for k, v in found.recall.items()} | {"MAP@R": found.map_at_r}
    classes = len(np.unique(labels))
    for name, times in (("NMI", 1), ("NMI+", MULTIPLIER)):
        if 1 < classes * times <= len(embeddings) // 2:
            result = clustering(embeddings, labels, multiplier=times, seed=seed)
            values[name] = float(result.nmi)
    return Scores(kind, values)


# What a cone does to searches by cosine, and what centring or whitening would give: measured.

CONE_ROWS = 2048  # of more rows, so many are looked at
_COUNTED = 20  # classes whose modes are counted on all rows without fine labels: it takes a while
_SHRINK = 0.1  # whitening: axes are divided by the root of their variance and so much of the mean's
_SPACING = float(np.finfo(np.float16).epsneg)  # of float16 just below 1


@dataclass(frozen=True)
class Way:
    """Rows as they are, centred, or whitened (only of more rows than dimensions).

    `float16` and `int8` are the shares of rows that get another nearest neighbour, by cosine, when
    rows are kept so; `recall` is R@1 by cosine, None without labels.
    """

    name: str
    cosine: float
    float16: float
    int8: float
    recall: float | None


@dataclass(frozen=True)
class ConeEffects:
    """`low` and `high` hold 80 % of the cosines between them; `rows` of `of` rows were measured."""

    low: float
    high: float
    ways: tuple[Way, ...]
    rows: int
    of: int

    @property
    def lead(self) -> str:
        """How many rows were measured, and what is left for a threshold."""
        low, high = cosine_text(self.low), cosine_text(self.high)
        some = f"{self.rows:,} rows" if self.rows == self.of else f"{self.rows:,} of {self.of:,}"
        return (
            f"Of {some}: 80 % of cosines lie in {low} to {high}; a threshold outside passes all "
            "pairs or none."
        )

    def __str__(self) -> str:
        now, centred = self.ways[:2]
        found = [
            self.lead,
            f"float16 (steps of {_SPACING:.2g}): {percent(now.float16)} of nearest neighbours "
            f"change; centred, {percent(centred.float16)}",
            f"int8 index: {percent(now.int8)} of nearest neighbours change; "
            f"centred, {percent(centred.int8)}",
        ]
        if now.recall is not None:
            scores = (f"{percent(way.recall)} {way.name}" for way in self.ways)
            found.append(f"R@1 by label: {', '.join(scores)}")
        return "\n".join(found)


def cone_effects(z: Array, labels: Array | None = None, *, of: int | None = None) -> ConeEffects:
    """Measure rows `[N, dim]`, at least three, with or without labels; `of` is how many there are.

    >>> rng = np.random.default_rng(0)
    >>> found = cone_effects(rng.normal(size=(200, 32)) + 30)
    >>> found.ways[0].float16 > 0.3 > 0.02 > found.ways[1].float16
    True
    """
    z = z / (np.abs(z).max() or 1.0)
    centred = z - z.mean(axis=0)
    white = _whitened(centred)
    ways = {"as they are": z, "centred": centred} | ({} if white is None else {"whitened": white})
    found = [_way(name, rows, labels) for name, rows in ways.items()]
    low, high = np.quantile(found[0][1], (0.1, 0.9)).tolist()
    several = tuple(way for way, _ in found)
    return ConeEffects(low, high, several, len(z), len(z) if of is None else of)


def _way(name: str, z: Array, labels: Array | None) -> tuple[Way, Array]:
    """What is measured of the rows, and their cosines, each pair once."""
    unit = _unit(z)
    cosines = unit @ unit.T
    pairs: Array = cosines[np.triu_indices(len(unit), 1)]
    nearest = _alone(cosines).argmax(axis=1)
    half = unit.astype(np.float16).astype(np.float64)
    halves = _alone((half @ half.T).astype(np.float16).astype(np.float64))
    whole = _unit(np.round(unit * (127 / (np.abs(unit).max() or 1.0))))
    way = Way(
        name,
        float(pairs.mean()),
        _changed(halves, nearest),
        _changed(_alone(whole @ whole.T), nearest),
        None if labels is None else _recall(cosines, labels),
    )
    return way, pairs


def _changed(cosines: Array, nearest: Array) -> float:
    """Share of rows whose nearest is another one now; of those that tie, one is found by luck."""
    best = cosines >= cosines.max(axis=1, keepdims=True)
    kept = best[np.arange(len(best)), nearest] / best.sum(axis=1)
    return float(1 - kept.mean())


def _recall(cosines: Array, labels: Array) -> float | None:
    """R@1 over the rows whose class has another member; among those that tie, the share."""
    ids = np.unique(labels, return_inverse=True)[1]
    several = np.bincount(ids)[ids] > 1
    if not several.any():
        return None
    best = cosines >= cosines.max(axis=1, keepdims=True)
    right = (best & (ids[:, None] == ids)).sum(axis=1) / best.sum(axis=1)
    return float(right[several].mean())


def _whitened(centred: Array) -> Array | None:
    """Principal axes at equal variance, shrunk so that axes of noise alone are not blown up.

    None for fewer rows than dimensions: whitened, these would all be at one distance.
    """
    found = spectrum(centred)
    if found.axes is None:
        return None
    variance = found.values**2 / len(centred)
    scale = np.sqrt(variance + _SHRINK * variance.mean())
    white: Array = centred @ (found.axes / np.where(scale > 0, scale, 1.0))
    return white


def _unit(z: Array) -> Array:
    norms = np.linalg.norm(z, axis=1, keepdims=True)
    unit: Array = z / np.where(norms > 0, norms, 1.0)
    return unit


def _alone(cosines: Array) -> Array:
    """The same array, in which no row is its own neighbour any more."""
    np.fill_diagonal(cosines, -np.inf)
    return cosines


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
        from uncollapse.report.diagnosis_page import make_diagnosis_page

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
    many = fine is None and coarse is not None and len(np.unique(coarse)) > _COUNTED
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
    if coarse is not None and modes and not many:
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


# The diagnosis of a run from its folder: its rows after training beside those before.


def diagnose_run(
    run: Run | str | Path,
    *,
    reference: float | None = None,
    tsne: bool = False,
    max_rows: int = MAX_ROWS,
) -> Diagnosis:
    """Diagnose the rows that a run was measured on, with the untrained network as the reference.

    Everything is read from the folder; neither dataset nor network is needed. The verdict is that
    of `train` and `report`. `reference` is a diameter to compare with instead. Raises
    `NotMeasuredError` where the run has not ended or was not measured, `DamagedFileError` for files
    that are not as the run left them.
    """
    from uncollapse.training import NotMeasuredError, Run
    from uncollapse.training.measures import name_labels

    found = run if isinstance(run, Run) else Run.open(run)
    measures = found.measures()
    if measures.after is None:
        raise NotMeasuredError(found.path, "measures after training: it has not ended")
    split = measures.split
    rows, facts = found.rows("after", split), measures.splits[split]
    before = Reference.of(measures.before.splits[split].health)
    fine = None if rows.fine_labels is None else name_labels(rows.fine_labels, facts.fine_names)
    result = diagnose(
        rows.embeddings,
        name_labels(rows.labels, facts.class_names),
        fine,
        title=found.path.resolve().name,
        reference=before if reference is None else reference,
        before=found.rows("before", split).embeddings if reference is None else None,
        tsne=tsne,
        max_rows=max_rows,
        cosine=found.config.loss.normalizes,
        settings=measures.settings,
    )
    start = measures.start(split) if reference is None else None
    return replace(result, split=split, compared_with="" if start is None else str(start))
