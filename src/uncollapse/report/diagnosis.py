"""Diagnose any embedding: a verdict in words, and one page that shows why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from uncollapse._base.arrays import Array, ArrayLike, as_rows, class_ids
from uncollapse._base.check import InputError, check_bool, check_int
from uncollapse._base.table import Cell, Table, percent
from uncollapse.charts import Chart, bars, scatter
from uncollapse.health.advice import RunSettings, advise
from uncollapse.health.figures import measure, with_modes
from uncollapse.health.verdict import Health, Reference, Thresholds, cosine_text
from uncollapse.metrics import evaluate_rows
from uncollapse.metrics.collapse import spectrum
from uncollapse.metrics.result import Card, Shown
from uncollapse.report import neighbours, parts
from uncollapse.report.page import Page

__all__ = ["Diagnosis", "diagnose"]

MULTIPLIER = 10  # clusters per class for NMI+, as in EPS table 2
MAX_ROWS = 30_000  # rows of 256 dimensions that one core scores in about a minute
_COUNTED = 20  # classes whose modes are counted on all rows without fine labels: it takes a while


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis(Shown):
    """The result; prints as a short text, `save` writes the page.

    `health` holds every figure, `scores` retrieval and clustering by kind of labels and name, on
    the `scored` ones of the rows. `compared_with` says what the reference is, where that is known,
    `split` what the rows are of; `cone` what a cone does to searches by cosine, where the verdict
    is that. The page draws its map by t-SNE if `tsne`.
    """

    title: str
    health: Health
    embeddings: Array
    labels: Array | None
    fine_labels: Array | None
    names: Array | None
    images: neighbours.Images | None
    tsne: bool
    scored: Array
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    cone: ConeEffects | None = None
    compared_with: str = ""
    split: str = ""

    def __post_init__(self) -> None:
        if self.images is not None and len(self.images) != self.health.n:
            images = f"{len(self.images)} images"
            raise InputError("images", images, f"{self.health.n}, one for each row")

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
        if len(self.scored) == self.health.n:
            return f"all {self.health.n:,} rows{of}"
        return f"{len(self.scored):,} of {self.health.n:,} rows{of}, the limit"

    @property
    def finite(self) -> bool:
        """Whether there is something to draw."""
        return math.isfinite(self.health.diameter)

    def spread_rows(self, most: int) -> Array:
        """At most so many rows, classes as even as they allow; without labels drawn from all."""
        labels = self.fine_labels if self.labels is None else self.labels
        return neighbours.spread_rows(labels, self.health.n, most)

    def page(self) -> Page:
        """The page, to render or to save."""
        return Page("diagnosis.html.j2", diagnosis_content(self))

    def save(self, path: str | Path) -> Path:
        """Write the page as one HTML file that needs no network."""
        return self.page().save(path)

    def card(self) -> Card:
        """The card of the health, with the scores."""
        shares: dict[str, float] = {}
        for kind, values in self.scores.items():
            shares |= {f"{name} by {kind}": value for name, value in values.items()}
        return replace(self.health.card(), shares=shares)

    def show(self, height: int = 800) -> None:
        """Show the whole page inside a notebook, in so many pixels; elsewhere, say how to save."""
        self.page().show(height)

    def __str__(self) -> str:
        lines = [str(self.health)]
        if self.compared_with:
            lines.append(f"  reference: {self.compared_with}")
        for kind, values in self.scores.items():
            numbers = ", ".join(f"{name} {percent(value)}" for name, value in values.items())
            lines.append(f"  by {kind}, on {self.scored_rows}: {numbers}")
        if self.cone is not None:
            lines += [f"  {line}" for line in str(self.cone).splitlines()]
        return "\n".join(lines)


def diagnose(
    embeddings: ArrayLike,
    labels: ArrayLike | None = None,
    fine_labels: ArrayLike | None = None,
    images: neighbours.Images | None = None,
    *,
    names: ArrayLike | None = None,
    title: str = "Embedding diagnosis",
    reference: Health | Reference | float | None = None,
    before: ArrayLike | None = None,
    thresholds: Thresholds | None = None,
    tsne: bool = False,
    max_rows: int = MAX_ROWS,
    modes: bool = True,
    cosine: bool = True,
    settings: RunSettings | None = None,
) -> Diagnosis:
    """Measure embeddings of any origin, `[N, dim]`, and say whether and how they have collapsed.

    `labels` and `fine_labels` are integers or strings, one per row. `images` (arrays, tensors,
    paths or Pillow images, one per row) are shown as nearest neighbours; `names` stand in where
    there are none. `reference` is a healthy earlier state or its diameter: without it, whether the
    scale is small cannot be decided (see `uncollapse.health`). `before`, the embeddings of the same
    rows at the start, shows whether the modes inside classes have merged. Retrieval and clustering
    use at most `max_rows`, which text and page state; the verdict looks at all rows. `modes=False`
    leaves out the modes of each class, which take the most time; `cosine=False` says that rows are
    compared by Euclidean distance alone. The advice is for the training's `settings`.

    >>> import torch
    >>> z = torch.randn(60, 8, generator=torch.Generator().manual_seed(0))
    >>> diagnose(z, torch.arange(60) % 6).verdict, diagnose(torch.ones(9, 2)).reasons
    ('healthy', ('all embeddings are equal',))
    """
    z = as_rows(embeddings, "embeddings").detach().cpu()
    check_int("max_rows", max_rows, 8)
    coarse, fine = _labels(labels, len(z), "labels"), _labels(fine_labels, len(z), "fine_labels")
    # Where there are few classes or fine labels, modes are counted on more rows.
    many = fine is None and coarse is not None and len(np.unique(coarse)) > _COUNTED
    health = measure(
        z,
        coarse,
        thresholds,
        reference,
        fine_labels=fine,
        before=before,
        modes=check_bool("modes", modes) and many,
        cosine=cosine,
    )
    result = Diagnosis(
        title,
        replace(health, advice=advise(health, settings or RunSettings())),
        z.double().numpy(),
        coarse,
        fine,
        _labels(names, len(z), "names"),
        images,
        check_bool("tsne", tsne),
        np.zeros(0, np.int64),
    )
    return _scored(result, max_rows, modes=modes and not many)


def _scored(result: Diagnosis, max_rows: int, *, modes: bool) -> Diagnosis:
    """The result with what is counted on at most so many rows: modes, scores, effects of a cone."""
    rows, health = result.spread_rows(max_rows), result.health
    z = result.embeddings[rows]
    kinds = {"label": result.labels, "fine label": result.fine_labels}
    labels = {kind: known[rows] for kind, known in kinds.items() if known is not None}
    if modes and "label" in labels:
        health = with_modes(health, z, labels["label"], labels.get("fine label"))
    result = replace(result, health=health, scored=rows)
    if not result.finite or health.n < 3:
        return result
    scores = {kind: score(z, some) for kind, some in labels.items() if len(np.unique(some)) > 1}
    if health.verdict != "cone":
        return replace(result, scores=scores)
    few = result.spread_rows(CONE_ROWS)
    some = None if result.labels is None else result.labels[few]
    effects = cone_effects(result.embeddings[few], some, of=health.n)
    return replace(result, scores=scores, cone=effects)


def score(embeddings: Array, labels: Array) -> dict[str, float]:
    """R@1, 2, 4, 8, MAP@R, NMI, and NMI+ with ten clusters per class where the rows allow it.

    >>> rows = np.array([[0.0], [0.1], [9.0], [9.2]])
    >>> score(rows, np.array([0, 0, 1, 1]))["R@1"]
    1.0
    """
    classes, most = len(np.unique(labels)), len(embeddings) // 2
    times = [many for many in (1, MULTIPLIER) if 1 < classes * many <= most]
    values = evaluate_rows(embeddings, labels, clusters=times, progress=False).values
    titles = {name: name.replace("recall@", "R@") for name in values if name.startswith("recall@")}
    titles |= {name: name.upper() for name in ("map@r", "nmi", "nmi+") if name in values}
    return {title: values[name] for name, title in titles.items()}


def _labels(labels: ArrayLike | None, n: int, name: str) -> Array | None:
    if labels is None:
        return None
    ids, classes = class_ids(labels, n, name)
    return np.asarray(classes[ids])


# What a cone does to searches by cosine, and what centring or whitening would give: measured.

CONE_ROWS = 2048  # of more rows, so many are looked at
_SHRINK = 0.1  # whitening: axes are divided by the root of their variance and so much of the mean's
_SPACING = float(np.finfo(np.float16).epsneg)  # of float16 just below 1


@dataclass(frozen=True)
class CosineFigures:
    """Rows as they are, centred, or whitened (only of more rows than dimensions).

    80 % of their cosines are between `low` and `high`; `cosine` is the mean. `float16` and `int8`
    are the shares of rows that get another nearest neighbour, by cosine, when rows are kept so;
    `recall` is R@1 by cosine, None without labels.
    """

    name: str
    low: float
    cosine: float
    high: float
    float16: float
    int8: float
    recall: float | None


@dataclass(frozen=True)
class ConeEffects:
    """The figures of each treatment; `rows` of `of` rows were measured."""

    treatments: tuple[CosineFigures, ...]
    rows: int
    of: int

    @property
    def lead(self) -> str:
        """How many rows were measured, and what is left for a threshold."""
        low, high = cosine_text(self.treatments[0].low), cosine_text(self.treatments[0].high)
        some = f"{self.rows:,} rows" if self.rows == self.of else f"{self.rows:,} of {self.of:,}"
        most = f"Of {some}: 80 % of cosines lie in {low} to {high}"
        return f"{most}; a threshold outside passes all pairs or none."

    def __str__(self) -> str:
        now, centred = self.treatments[:2]
        lines = [
            self.lead,
            f"float16 (steps of {_SPACING:.2g}): {percent(now.float16)} of nearest neighbours "
            f"change; centred, {percent(centred.float16)}",
            f"int8 index: {percent(now.int8)} of nearest neighbours change; "
            f"centred, {percent(centred.int8)}",
        ]
        if now.recall is not None:
            scores = (f"{percent(one.recall)} {one.name}" for one in self.treatments)
            lines.append(f"R@1 by label: {', '.join(scores)}")
        return "\n".join(lines)


def cone_effects(z: Array, labels: Array | None = None, *, of: int | None = None) -> ConeEffects:
    """Measure rows `[N, dim]`, at least three, with or without labels; `of` is how many there are.

    >>> rng = np.random.default_rng(0)
    >>> effects = cone_effects(rng.normal(size=(200, 32)) + 30)
    >>> effects.treatments[0].float16 > 0.3 > 0.02 > effects.treatments[1].float16
    True
    """
    z = z / (np.abs(z).max() or 1.0)
    centred = z - z.mean(axis=0)
    white = _whitened(centred)
    treated = {"as they are": z, "centred": centred}
    treated |= {} if white is None else {"whitened": white}
    figures = tuple(_cosine_figures(name, rows, labels) for name, rows in treated.items())
    return ConeEffects(figures, len(z), len(z) if of is None else of)


def _cosine_figures(name: str, z: Array, labels: Array | None) -> CosineFigures:
    unit = _unit(z)
    cosines = unit @ unit.T
    pairs = cosines[np.triu_indices(len(unit), 1)]
    low, high = np.quantile(pairs, (0.1, 0.9)).tolist()
    nearest = _alone(cosines).argmax(axis=1)
    half = unit.astype(np.float16).astype(np.float64)
    halves = _alone((half @ half.T).astype(np.float16).astype(np.float64))
    whole = _unit(np.round(unit * (127 / (np.abs(unit).max() or 1.0))))
    wholes = _alone(whole @ whole.T)
    # Of those that tie, one is found by luck.
    float16, int8 = (
        1 - float(_best(kept)[np.arange(len(z)), nearest].mean()) for kept in (halves, wholes)
    )
    recall = None
    if labels is not None:
        ids = np.unique(labels, return_inverse=True)[1]
        several = np.bincount(ids)[ids] > 1  # R@1 is over rows whose class has another member
        right = (_best(cosines) * (ids[:, None] == ids)).sum(axis=1)
        recall = float(right[several].mean()) if several.any() else None
    return CosineFigures(name, low, float(pairs.mean()), high, float16, int8, recall)


def _best(cosines: Array) -> Array:
    """For each row its nearest one as 1, or those that tie, as shares of 1."""
    best = cosines >= cosines.max(axis=1, keepdims=True)
    return np.asarray(best / best.sum(axis=1, keepdims=True))


def _whitened(centred: Array) -> Array | None:
    """Principal axes at equal variance, shrunk so that axes of noise alone are not blown up.

    None for fewer rows than dimensions: whitened, these would all be at one distance.
    """
    principal = spectrum(centred)
    if principal.axes is None:
        return None
    variance = principal.values**2 / len(centred)
    scale = np.sqrt(variance + _SHRINK * variance.mean())
    return np.asarray(centred @ (principal.axes / np.where(scale > 0, scale, 1.0)))


def _unit(z: Array) -> Array:
    norms = np.linalg.norm(z, axis=1, keepdims=True)
    return np.asarray(z / np.where(norms > 0, norms, 1.0))


def _alone(cosines: Array) -> Array:
    """Set the diagonal to -inf, in place, so that no row is its own neighbour."""
    np.fill_diagonal(cosines, -np.inf)
    return cosines


# The page: verdict, distances, spectrum, map, classes, scores, neighbours, all figures.

_AXES = 40  # bars of the spectrum
_MAPPED = 2_000  # rows on the map


def diagnosis_content(result: Diagnosis) -> dict[str, Any]:
    """What the template shows; `finite` is False where there is nothing to draw."""
    health = result.health
    classes = f", {len(health.classes):,} classes" if health.classes else ""
    reference = f"; reference: {result.compared_with}" if result.compared_with else ""
    content = {
        "title": result.title,
        "lead": f"{health.n:,} embeddings of {health.dim:,} dimensions{classes}{reference}",
        "verdict": parts.verdict_content(health),
        "finite": result.finite,
    }
    if not result.finite:
        return content
    figures = {"diameter": health.diameter} | parts.class_figures(health)
    if result.scores:
        kind, values = next(iter(result.scores.items()))
        figures[f"R@1, by {kind}, on {result.scored_rows}"] = percent(values["R@1"])
    return content | {
        "figures": figures | {f"effective rank, of {health.room:,}": health.effective_rank},
        "cone": None if result.cone is None else _cone_content(result.cone),
        "distances": [parts.distance_chart(health), *_spectrum(result)],
        "maps": _maps(result),
        "classes": parts.class_table(health),
        "scores": _score_table(result) if result.scores else None,
        "multiplier": MULTIPLIER,
        "scored": len(result.scored),
        "neighbours": _neighbours(result),
        "health": health,
    }


def _cone_content(cone: ConeEffects) -> dict[str, Any]:
    """What the cone does, and what centring would give."""
    labelled = cone.treatments[0].recall is not None
    head = ["rows", "mean cosine", "float16", "int8", *["R@1, by cosine"] * labelled]
    rows = [
        [
            one.name,
            Cell(cosine_text(one.cosine), one.cosine),
            *map(parts.share_cell, (one.float16, one.int8, *[one.recall] * labelled)),
        ]
        for one in cone.treatments
    ]
    return {"lead": cone.lead, "table": Table(head, rows)}


def _spectrum(result: Diagnosis) -> list[Chart]:
    if result.health.n < 3:
        return []
    shares = spectrum(result.embeddings[result.scored]).shares.tolist()
    more = f", first {_AXES} of {len(shares):,}" * (len(shares) > _AXES)
    axes = result.health.axes
    chart = bars(
        "Spectrum",
        shares[:_AXES],
        x_label="principal axis",
        note=f"share of the variance on each principal axis{more}",
        split=(axes, f"99 % in {axes}"),
        percent=True,
    )
    return [chart]


def _maps(result: Diagnosis) -> list[Chart]:
    rows = result.spread_rows(_MAPPED)
    plane = parts.project(result.embeddings[rows], tsne=result.tsne)
    note = parts.projection_name(result.health.dim, tsne=result.tsne)
    if len(rows) < result.health.n:
        note += f", {len(rows):,} of {result.health.n:,} rows"
    kinds = {"By label": result.labels, "By fine label": result.fine_labels}
    known: dict[str, Array | None] = {
        title: labels[rows] for title, labels in kinds.items() if labels is not None
    }
    return [
        scatter(title, plane, labels, note=note, rule=not result.tsne)
        for title, labels in (known or {"All embeddings": None}).items()
    ]


def _score_table(result: Diagnosis) -> Table:
    names = list(dict.fromkeys(name for values in result.scores.values() for name in values))
    used = Cell(result.scored_rows.replace(" rows", ""), len(result.scored))
    rows = [
        [kind, used, *(parts.share_cell(values.get(name)) for name in names)]
        for kind, values in result.scores.items()
    ]
    return Table(["by", "rows", *names], rows)


def _neighbours(result: Diagnosis) -> dict[str, Any] | None:
    coarse, fine, images, names = result.labels, result.fine_labels, result.images, result.names
    if result.health.n < 3 or (images is None and names is None):
        return None
    # Queries are spread over the finest labels there are, and judged by the coarse ones.
    near = neighbours.neighbourhood(result.embeddings, coarse if fine is None else fine)
    near = near if coarse is None else near.by(coarse)
    sheets, lists = [], []
    if images is not None:
        judged = {"label": near} | ({} if fine is None else {"fine label": near.by(fine)})
        draw = neighbours.sheet_picture
        sheets = [draw(one, images, kind=kind) for kind, one in judged.items()]
    elif names is not None:
        lists = [neighbours.word_lists(near, names, coarse, fine)]
    return {"judged": near.right is not None, "sheets": sheets, "lists": lists}
