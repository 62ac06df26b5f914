"""The page of a diagnosis: verdict, distances, spectrum, map, classes, scores, neighbours."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from uncollapse._base.table import number, percent
from uncollapse.charts import Chart, bars, histogram, scatter
from uncollapse.health import ClassHealth, Health, RunSettings
from uncollapse.health.advice import advise
from uncollapse.health.verdict import cosine_text
from uncollapse.report.diagnosis import MULTIPLIER
from uncollapse.report.neighbours import sheet_picture, word_lists
from uncollapse.report.page import Cell, Page, Table, verdict_text
from uncollapse.report.projection import projection_name

if TYPE_CHECKING:
    from uncollapse.report.diagnosis import Diagnosis

__all__ = [
    "all_figures",
    "class_figures",
    "class_table",
    "diagnosis_content",
    "distance_chart",
    "make_diagnosis_page",
    "verdict_content",
]


# The figures of an embedding's health as a page shows them: a few, by class, all of them.


def verdict_content(health: Health, settings: RunSettings | None = None) -> dict[str, Any]:
    """Headline, reasons, and what helps: the adviser's sentence for a run of these settings."""
    text = verdict_text(health.verdict, health.reasons)
    advice = health.advice or advise(health, settings or RunSettings())
    helps = " ".join(filter(None, (text.helps, f"Advice: {advice}." if advice else "")))
    return text._asdict() | {"reasons": health.reasons, "helps": helps}


def class_figures(health: Health) -> dict[str, object]:
    """How large and how varied the classes are, by the name to show; only what is known."""
    figures: dict[str, object] = {}
    ratios = [one.ratio for one in health.classes if one.count > 1]
    if ratios:
        figures["median class diameter, of the whole"] = percent(float(np.median(ratios)))
    modes = list(health.modes_per_class.values())
    if modes:
        figures["modes per class, mean"] = float(np.mean(modes))
    if health.fine_agreement is not None:
        figures["neighbours in the class that share the fine label"] = percent(
            health.fine_agreement
        )
    if health.fine_kept is not None:
        figures["of that above chance, left of the start"] = percent(health.fine_kept)
    if health.modes_kept is not None:
        figures["neighbourhoods in the classes, left of the start"] = percent(health.modes_kept)
    return figures


def class_table(health: Health, first: int = 12) -> Table | None:
    """Classes, the most collapsed first; None without labels."""
    if not health.classes:
        return None
    order = sorted(health.classes, key=_tightness)
    modes = any(one.modes is not None for one in order)
    head = ["class", "samples", "diameter", "of the whole", "tightness", *["modes"] * modes]
    rows = [
        [
            one.label,
            one.count,
            one.diameter,
            Cell(percent(one.ratio), one.ratio),
            Cell(percent(one.tightness), _tightness(one)),
            *[one.modes] * modes,
        ]
        for one in order
    ]
    return Table(head, rows, first=first, sortable=True)


def distance_chart(health: Health, title: str = "Distances") -> Chart:
    """Histogram within and between classes; of all pairs without labels."""
    kinds = {"all pairs": health.between}
    if health.within is not None:
        kinds = {"within a class": health.within, "between classes": health.between}
    note = f"share of the pairs of {health.sampled:,} rows"
    return histogram(title, kinds, x_label="distance", note=note)


def all_figures(health: Health) -> list[tuple[str, object, str]]:
    """Name, value and meaning of every figure; those that need labels where there are some."""
    thick, norms = health.thickness, health.norms
    found: list[tuple[str, object, str]] = [
        ("diameter", health.diameter, "largest distance between two embeddings (exact)"),
        ("spread", health.spread, "root mean square distance between two embeddings"),
        ("distance of the centre from the origin", health.centre_norm, ""),
        ("length of an embedding", _range(norms.smallest, norms.largest),
         f"mean {number(norms.mean)}"),
        ("rounding error of a distance", health.resolution, "in the precision given"),
        ("effective rank", health.effective_rank, "exponential of the entropy of the spectrum"),
        ("axes with 99 % of the variance", health.axes, f"of {health.room:,} possible"),
        ("thickness", _range(thick.lower, thick.upper), "smallest width in any direction"),
    ]  # fmt: skip
    if health.cosines is not None:
        low, high = (cosine_text(v) for v in (health.cosines.low, health.cosines.high))
        mean = cosine_text(health.cosines.mean)
        found.append(("cosine between two embeddings", mean, f"mean; 80 % from {low} to {high}"))
    if health.relative_diameter is not None:
        share = percent(health.relative_diameter)
        found.insert(1, ("diameter / reference", share, "1 % or less: collapse"))
    near = health.nearest
    if near is not None:
        chance = f"{percent(near.chance)} ± {percent(2 * near.deviation)} for shuffled labels"
        found.append(("nearest neighbour has the label", percent(near.share), chance))
    by_label: list[tuple[str, float | None, str]] = [
        ("separation", health.separation, "nearest negative minus farthest positive, at its worst"),
        ("agreement", health.agreement, f"of nearest neighbours; chance {percent(health.chance)}"),
        ("variance inside classes", health.within_share, "share of all variance"),
        ("NC1", health.nc1, "within-class over between-class variability; 0: points"),
        ("CDNV", health.cdnv, "class variance over squared class distance; 0: points"),
        ("fine agreement", health.fine_agreement,
         f"of nearest neighbours inside the class; chance {percent(health.fine_chance)}"),
        ("fine agreement kept", health.fine_kept, "above chance, of that at the start"),
        ("neighbourhoods kept", health.modes_kept, "inside classes, of those at the start"),
    ]  # fmt: skip
    shares = (
        *("agreement", "variance inside classes", "fine agreement"),
        *("fine agreement kept", "neighbourhoods kept"),
    )
    return found + [
        (name, percent(value) if name in shares else value, text)
        for name, value, text in by_label
        if value is not None
    ]


def _range(low: float, high: float) -> str:
    return number(low) if low == high else f"{number(low)} to {number(high)}"


def _tightness(one: ClassHealth) -> float:
    return math.inf if math.isnan(one.tightness) else one.tightness


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
