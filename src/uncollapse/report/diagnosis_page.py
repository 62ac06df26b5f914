"""The page of a diagnosis: verdict, distances, spectrum, map, classes, scores, neighbours."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from uncollapse.charts import Chart, bars, scatter
from uncollapse.charts.numbers import percent
from uncollapse.health.verdict import cosine_text
from uncollapse.report.health_tables import (
    all_figures,
    class_figures,
    class_table,
    distance_chart,
    verdict_content,
)
from uncollapse.report.neighbours import sheet_picture, word_lists
from uncollapse.report.page import Page
from uncollapse.report.projection import projection_name
from uncollapse.report.scores import MULTIPLIER
from uncollapse.report.tables import Cell, Table

if TYPE_CHECKING:
    from uncollapse.report.diagnosis import Diagnosis

__all__ = ["diagnosis_content", "make_diagnosis_page"]

_AXES = 40  # bars of the spectrum


def make_diagnosis_page(found: Diagnosis) -> Page:
    """The page, to render, to add to or to save."""
    return Page("diagnosis.html.j2", diagnosis_content(found))


def diagnosis_content(found: Diagnosis) -> dict[str, Any]:
    """What the template shows; `finite` is False where there is nothing to draw."""
    health = found.health
    classes = f", {len(health.classes):,} classes" if health.classes else ""
    reference = f"; reference: {found.compared_with}" if found.compared_with else ""
    content = {
        "title": found.title,
        "lead": f"{health.n:,} embeddings of {health.dim:,} dimensions{classes}{reference}",
        "verdict": verdict_content(health),
        "finite": math.isfinite(health.diameter),
    }
    if not content["finite"]:
        return content
    return content | {
        "figures": _figures(found),
        "cone": _cone(found),
        "distances": [distance_chart(health), *_spectrum(found)],
        "maps": _maps(found),
        "classes": class_table(health),
        "scores": _score_table(found) if found.scores else None,
        "multiplier": MULTIPLIER,
        "scored": found.scored,
        "total": health.n,
        "neighbours": _neighbours(found),
        "all_figures": all_figures(health),
    }


def _figures(found: Diagnosis) -> dict[str, object]:
    health = found.health
    figures = {"diameter": health.diameter} | class_figures(health)
    if found.scores:
        first = found.scores[0]
        figures[f"R@1, by {first.kind}, on {found.scored_rows}"] = percent(first.values["R@1"])
    return figures | {f"effective rank, of {health.room:,}": health.effective_rank}


def _cone(found: Diagnosis) -> dict[str, Any] | None:
    """What the cone does, and what centring would give."""
    if found.cone is None:
        return None
    labelled = found.cone.ways[0].recall is not None
    head = ["rows", "mean cosine", "float16", "int8", *["R@1, by cosine"] * labelled]
    rows = [
        [
            way.name,
            Cell(cosine_text(way.cosine), way.cosine),
            Cell(percent(way.float16), way.float16),
            Cell(percent(way.int8), way.int8),
            *[Cell(percent(way.recall), way.recall)] * labelled,
        ]
        for way in found.cone.ways
    ]
    return {"lead": found.cone.lead, "table": Table(head, rows)}


def _spectrum(found: Diagnosis) -> list[Chart]:
    if not len(found.shares):
        return []
    drawn = found.shares[:_AXES]
    more = f", first {len(drawn)} of {len(found.shares):,}" * (len(found.shares) > len(drawn))
    axes = found.health.axes
    return [
        bars(
            "Spectrum",
            [float(v) for v in drawn],
            x_label="principal axis",
            note=f"share of the variance on each principal axis{more}",
            split=(axes, f"99 % in {axes}"),
            percent=True,
        )
    ]


def _maps(found: Diagnosis) -> list[Chart]:
    rows = found.plane_rows
    small = projection_name(found.health.dim, tsne=found.tsne)
    if len(rows) < found.health.n:
        small += f", {len(rows):,} of {found.health.n:,} rows"
    kinds = {"By label": found.labels, "By fine label": found.fine_labels}
    known = {title: labels[rows] for title, labels in kinds.items() if labels is not None}
    if not known:
        return [scatter("All embeddings", found.plane, note=small, rule=not found.tsne)]
    return [
        scatter(title, found.plane, labels, note=small, rule=not found.tsne)
        for title, labels in known.items()
    ]


def _score_table(found: Diagnosis) -> Table:
    names = list(dict.fromkeys(name for one in found.scores for name in one.values))
    used = Cell(found.scored_rows.replace(" rows", ""), found.scored)
    rows = [
        [one.kind, used, *(Cell(percent(one.values.get(n)), one.values.get(n)) for n in names)]
        for one in found.scores
    ]
    return Table(["by", "rows", *names], rows)


def _neighbours(found: Diagnosis) -> dict[str, Any] | None:
    near = found.neighbourhood
    if near is None or (found.images is None and found.names is None):
        return None
    content: dict[str, Any] = {"judged": near.right is not None, "sheets": [], "lists": []}
    if found.images is not None:
        content["sheets"] = [sheet_picture(near, found.images)]
        if found.fine_labels is not None:
            fine = near.by(found.fine_labels)
            content["sheets"].append(sheet_picture(fine, found.images, kind="fine label"))
    elif found.names is not None:
        content["lists"] = [word_lists(near, found.names, found.labels, found.fine_labels)]
    return content
