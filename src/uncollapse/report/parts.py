"""What several pages show: a verdict, the figures of classes, maps, races of strategies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from uncollapse._base.arrays import Array, ArrayLike, points64
from uncollapse._base.check import visible
from uncollapse._base.table import Cell, Table, percent
from uncollapse.charts import Chart, Series, curves, histogram, scatter
from uncollapse.charts.marks import SERIES
from uncollapse.charts.plots import NAMED, by_size, map_places
from uncollapse.health.advice import RunSettings, advise
from uncollapse.health.race import TIE, Race
from uncollapse.health.verdict import VERDICTS, ClassHealth, Health
from uncollapse.report.neighbours import Images, short_line, sprite

PICTURES = 2_000  # on a map at most: about one megabyte of photographs
_TEXTS, _SHORTEST = 1_200_000, 40  # characters on a map in all, and of one name at least

_GLYPHS = {"good": "✓", "warn": "▼", "bad": "✗"}
_MERGED = "Class collapse: the modes inside classes have merged"


def verdict_text(verdict: str | None, reasons: Sequence[str] = ()) -> dict[str, str]:
    """`headline`, `helps`, `glyph` and `tone` of a verdict; None or an unknown one is not judged.

    Of the two kinds of class collapse the deciding reason, the first, says which it is.

    >>> verdict_text("healthy")["headline"]
    'Healthy: no collapse found'
    """
    if verdict not in VERDICTS:
        return {"headline": "Not judged", "helps": "", "glyph": "?", "tone": "none"}
    known = VERDICTS[verdict]
    merged = verdict == "class-collapse" and reasons and "nearly points" not in reasons[0]
    headline, glyph = _MERGED if merged else known.headline, _GLYPHS[known.tone]
    return {"headline": headline, "helps": known.meaning, "glyph": glyph, "tone": known.tone}


def verdict_cell(verdict: str | None) -> Cell:
    """A verdict in a table: glyph and word.

    >>> verdict_cell("healthy")
    Cell(text='✓ healthy', value=None, note='', style='badge good')
    """
    text = verdict_text(verdict)
    return Cell(f"{text['glyph']} {verdict or 'not judged'}", style=f"badge {text['tone']}")


def verdict_content(health: Health, settings: RunSettings | None = None) -> dict[str, Any]:
    """Headline, reasons, and what helps: the adviser's sentence for a run of these settings."""
    text = verdict_text(health.verdict, health.reasons)
    advice = health.advice or advise(health, settings or RunSettings())
    helps = " ".join(filter(None, (text["helps"], f"Advice: {advice}." if advice else "")))
    return text | {"reasons": health.reasons, "helps": helps}


def share_cell(share: float | None) -> Cell:
    """A share of one in per cent, sorted by its value."""
    return Cell(percent(share), share)


def class_figures(health: Health) -> dict[str, object]:
    """How large and how varied the classes are, by the name to show; only what is known."""
    ratios = [one.ratio for one in health.classes if one.count > 1]
    modes = list(health.modes_per_class.values())
    shares = {
        "median class diameter, of the whole": float(np.median(ratios)) if ratios else None,
        "neighbours in the class that share the fine label": health.fine_agreement,
        "of that above chance, left of the start": health.fine_kept,
        "neighbourhoods in the classes, left of the start": health.modes_kept,
    }
    figures: dict[str, object] = {k: percent(v) for k, v in shares.items() if v is not None}
    return figures | ({"modes per class, mean": float(np.mean(modes))} if modes else {})


def class_table(health: Health, first: int = 12) -> Table | None:
    """Classes, the most collapsed first; None without labels."""
    if not health.classes:
        return None
    order = sorted(health.classes, key=_tightness)
    modes = any(one.modes is not None for one in order)
    head = ["class", "samples", "diameter", "of the whole", "tightness", *["modes"] * modes]
    rows = [
        [
            *(one.label, one.count, one.diameter, share_cell(one.ratio)),
            Cell(percent(one.tightness), _tightness(one)),
            *[one.modes] * modes,
        ]
        for one in order
    ]
    return Table(head, rows, first=first, sortable=True)


def _tightness(one: ClassHealth) -> float:
    return math.inf if math.isnan(one.tightness) else one.tightness


def distance_chart(health: Health, title: str = "Distances") -> Chart:
    """Histogram within and between classes; of all pairs without labels."""
    kinds = {"all pairs": health.between}
    if health.within is not None:
        kinds = {"within a class": health.within, "between classes": health.between}
    note = f"share of the pairs of {health.sampled:,} rows"
    return histogram(title, kinds, x_label="distance", note=note)


# Maps in the plane: principal axes, or t-SNE on request.


def project(embeddings: ArrayLike, *, tsne: bool = False, seed: int = 0) -> Array:
    """Points `[N, 2]`. Two dimensions stay as they are; more go on the two principal axes.

    The sign of an axis is chosen so that its largest weight is positive: the same rows give the
    same map. t-SNE (scikit-learn) starts from the principal axes; with fewer than 8 rows there is
    nothing for it to do.

    >>> project([[0.0, 0.0, 0.0], [2.0, 0.0, 0.0]]).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """
    rows = points64(embeddings, "embeddings")
    placed = rows if rows.shape[1] <= 2 else _principal(rows)
    placed = np.hstack([placed, np.zeros((len(placed), 2 - placed.shape[1]))])
    if not tsne or len(rows) < 8:
        return placed
    from sklearn.manifold import TSNE

    start = placed / (placed[:, 0].std() or 1.0) * 1e-4
    scaled = (rows - rows.mean(axis=0)) / (float(rows.std()) or 1.0)
    perplexity = min(30.0, (len(rows) - 1) / 3)
    placed = TSNE(2, perplexity=perplexity, init=start, random_state=seed).fit_transform(scaled)
    return np.asarray(placed, np.float64)


def projection_name(dim: int, *, tsne: bool = False) -> str:
    """What the map's axes are.

    >>> projection_name(2), projection_name(64)
    ('the two dimensions as they are', 'two principal axes of 64')
    """
    if tsne:
        return f"t-SNE of {dim} dimensions: neighbourhoods count, distances do not"
    return f"two principal axes of {dim}" if dim > 2 else "the two dimensions as they are"


@dataclass(frozen=True, eq=False)
class MapView:
    """One drawing of a pointed map: places `[M, 2]` and nearest rows `[M, k]` of the mapped rows.

    `labels` are of all rows. `rule` as for `charts.scatter`.
    """

    title: str
    plane: Array
    near: Array
    labels: Array | None = None
    note: str = ""
    rule: bool = True


def pointed_map(
    views: Sequence[MapView],
    rows: Array,
    *,
    names: Array | None = None,
    images: Images | None = None,
    flags: Mapping[str, Array] | None = None,
) -> dict[str, Any]:
    """Maps of the same `rows` that one can point into, for the macro `pointed_map` of templates.

    A point shows its picture or name, its labels and its neighbours, in all views at once. `names`
    and `images` are by row of the whole set; each mapped row gets a picture, so give `PICTURES` of
    them at most. `flags` has row numbers by the name of the filter that shows them alone.
    """
    shown = np.unique(np.concatenate([view.near.ravel() for view in views]))
    shown = np.concatenate([rows, np.setdiff1d(shown, rows)])  # the mapped ones first
    order = np.argsort(shown)
    charts, drawn = [], []
    for view in views:
        places, near = map_places(view.plane)[0], np.searchsorted(shown, view.near, sorter=order)
        entry = {"title": view.title, "places": places.tolist(), "near": order[near].tolist()}
        here, named = None, []
        if view.labels is not None:
            here, seen = view.labels[rows], view.labels[shown].tolist()
            ranks = {name: i for i, name in enumerate(by_size(view.labels))}
            classes = sorted(set(seen), key=ranks.__getitem__)
            named = sorted(set(here.tolist()), key=ranks.__getitem__)[:NAMED]
            numbers = {name: i for i, name in enumerate(classes)}
            entry["labels"] = [numbers[name] for name in seen]
            entry["classes"] = [visible(str(name)) for name in classes]
            colors = {name: f"s{i % SERIES}" for i, name in enumerate(named)}
            entry["colors"] = [colors.get(name, "s7") for name in classes]
        drawn.append(entry)
        settings: dict[str, Any] = {"note": view.note, "rule": view.rule, "classes": named}
        charts.append(scatter(view.title, view.plane, here, **settings))
    room = max(_SHORTEST, _TEXTS // len(shown))
    known = [] if names is None else [short_line(str(name), room) for name in names[shown]]
    marked = {k: np.flatnonzero(np.isin(rows, v)).tolist() for k, v in (flags or {}).items()}
    return {
        "charts": charts,
        "pictures": None if images is None else sprite(images, rows),
        "data": {
            "rows": shown.tolist(),
            "names": list(map(visible, known)),
            "flags": {kind: points for kind, points in marked.items() if points},
            "views": drawn,
        },
    }


def _principal(rows: Array) -> Array:
    centred = rows - rows[0]
    centred -= centred.mean(axis=0)
    largest = float(np.abs(centred).max()) or 1.0
    axes = np.linalg.svd(centred / largest, full_matrices=False)[2][:2]
    signs = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])
    return np.asarray(centred @ (axes * signs[:, None]).T)


# Races of strategies: R@1 of held-out rows over the steps of the race.

RECALL = "R@1 on train"  # of samples that are not trained on


def race_chart(race: Race, title: str) -> Chart:
    """One line per strategy, ending where it is out."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for score in race.scores:
        first = [] if race.start is None else [(0, race.start)]
        lines.setdefault(score.strategy, first).append((score.steps, score.recall))
    series = [
        Series(f"{name} (chosen)" if name == race.chosen else name, *zip(*scores, strict=True))
        for name, scores in lines.items()
    ]
    return curves(
        title,
        series,
        x_label="steps of the race",
        x_ticks={0.0: "0"} | {float(score.steps): f"{score.steps:,}" for score in race.scores},
        note=f"R@1 of {race.rows:,} held-out training samples; chosen: {race.chosen}"
        + f", {TIE}" * race.tied,
        log=False,
        percent=True,
        zero=False,
    )


def result_cell(result: str) -> Cell:
    """How a strategy ended: it wins, is out, shrinks, or there was no room for it."""
    return Cell("✓ chosen" if result == "wins" else result, style="whole")


def race_table(race: Race) -> Table:
    """The last score of each strategy, the chosen one first."""
    rows = []
    for name, score in sorted(race.last.items(), key=lambda item: item[0] != race.chosen):
        lost = "shrinks" if score.shrinks else "out"
        result = result_cell("wins" if name == race.chosen else lost)
        rows.append([name, score.steps, share_cell(score.recall), result])
    return Table(["strategy", "steps", RECALL, "result"], rows, first=15)
