"""The page of a diagnosis: verdict, distances, spectrum, map, classes, scores, neighbours."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from uncollapse.health import ClassHealth, Health
from uncollapse.report.blocks import Cell, figures, grid, note, paragraph, table
from uncollapse.report.charts import bars, histogram, scatter
from uncollapse.report.class_figures import class_figures
from uncollapse.report.markup import Html, esc, join, number, percent
from uncollapse.report.neighbours import neighbour_names, neighbour_pictures, picture_key
from uncollapse.report.page import Page
from uncollapse.report.project import projection_name
from uncollapse.report.scores import score_table
from uncollapse.report.words import verdict_words

if TYPE_CHECKING:
    from uncollapse.report.diagnosis import Diagnosis

__all__ = ["build_page", "class_table", "distance_chart", "figure_table", "verdict_body"]

_AXES = 40  # bars of the spectrum
_CLASS_ROWS = 12


def build_page(found: Diagnosis) -> Page:
    """All sections there is something to say in."""
    health = found.health
    classes = f", {len(health.classes):,} classes" if health.classes else ""
    page = Page(found.title, f"{health.n:,} embeddings of {health.dim:,} dimensions{classes}")
    words = verdict_words(health.verdict)
    page.add(words.headline, _verdict(found), anchor="verdict", tone=words.tone, glyph=words.glyph)
    if not math.isfinite(health.diameter):
        return page
    page.add("Distances and dimensions", _spread(found), anchor="distances")
    page.add("Map", _map(found))
    page.add("Classes", class_table(health))
    if found.scores:
        page.add(
            "Retrieval and clustering",
            score_table(list(found.scores), found.scored, health.n),
            anchor="scores",
        )
    page.add("Nearest neighbours", _neighbours(found), anchor="neighbours")
    page.add("All figures", figure_table(health), anchor="figures")
    return page


def verdict_body(health: Health) -> Html:
    """The reasons, and what helps."""
    reasons = join(Html(f"<li>{esc(reason)}</li>") for reason in health.reasons)
    helps = health.advice or verdict_words(health.verdict).helps
    return Html(f"<ul>{reasons}</ul>{paragraph(helps) if helps else ''}")


def distance_chart(health: Health, title: str = "Distances") -> Html:
    """Histogram within and between classes; of all pairs without labels."""
    kinds = {"all pairs": health.between}
    if health.within is not None:
        kinds = {"within a class": health.within, "between classes": health.between}
    small = f"share of the pairs of {health.sampled:,} rows"
    return histogram(title, kinds, x_label="distance", small=small)


def class_table(health: Health) -> Html:
    """Classes, the most collapsed first."""
    if not health.classes:
        return Html("")
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
    text = (
        "The most collapsed first. Tightness: the distance that three quarters of a class's pairs "
        "stay below, beside the median distance between classes; 0 % is a point."
    )
    return Html(note(text) + table(head, rows, first=_CLASS_ROWS, sortable=True))


def figure_table(health: Health) -> Html:
    """Every figure with what it means; those that need labels only where there are some."""
    thick = health.thickness
    lines: list[tuple[str, object, str]] = [
        ("diameter", health.diameter, "largest distance between two embeddings (exact)"),
        ("spread", health.spread, "root mean square distance of two embeddings"),
        ("distance of the centre to the origin", health.centre_norm, ""),
        ("length of an embedding", f"{number(health.norms.smallest)} to "
         f"{number(health.norms.largest)}", f"mean {number(health.norms.mean)}"),
        ("rounding error of a distance", health.resolution, "in the precision given"),
        ("effective rank", health.effective_rank, "exponential of the entropy of the spectrum"),
        ("axes with 99 % of the variance", health.axes, f"of {health.room:,} possible"),
        ("thickness", _bracket(thick.lower, thick.upper), "smallest width in any direction"),
    ]  # fmt: skip
    if health.relative_diameter is not None:
        lines.insert(
            1, ("diameter / reference", percent(health.relative_diameter), "1 % or less: collapse")
        )
    known: list[tuple[str, float | None, str]] = [
        ("separation", health.separation, "nearest negative minus farthest positive, at its worst"),
        ("agreement", health.agreement, f"of nearest neighbours; chance {percent(health.chance)}"),
        ("variance inside classes", health.within_share, "share of all variance"),
        ("NC1", health.nc1, "within-class over between-class variability; 0: points"),
        ("CDNV", health.cdnv, "class variance over squared class distance; 0: points"),
    ]  # fmt: skip
    shares = ("agreement", "variance inside classes")
    lines += [
        (name, percent(value) if name in shares else value, text)
        for name, value, text in known
        if value is not None
    ]
    rows = [[_explained(name, text), _kept(value)] for name, value, text in lines]
    return table(["figure", "value"], rows)


def _verdict(found: Diagnosis) -> Html:
    health = found.health
    shown = {"diameter": health.diameter} | class_figures(health)
    if found.scores:
        shown["R@1"] = percent(found.scores[0].values["R@1"])
    shown[f"effective rank, of {health.room:,}"] = health.effective_rank
    if not math.isfinite(health.diameter):
        return verdict_body(health)
    return Html(verdict_body(health) + figures(shown))


def _spread(found: Diagnosis) -> Html:
    health = found.health
    parts = [distance_chart(health)]
    if len(found.shares):
        shown = found.shares[:_AXES]
        more = f", first {len(shown)} of {len(found.shares):,}" * (len(found.shares) > len(shown))
        parts.append(
            bars(
                "Spectrum",
                [float(v) for v in shown],
                x_label="principal axis",
                small=f"share of the variance on each principal axis{more}",
                split=(health.axes, f"99 % in {health.axes}"),
                percent=True,
            )
        )
    return grid(parts)


def _map(found: Diagnosis) -> Html:
    rows = found.plane_rows
    small = projection_name(found.health.dim, tsne=found.tsne)
    if len(rows) < found.health.n:
        small += f", {len(rows):,} of {found.health.n:,} rows"
    parts = []
    for title, labels in (("By label", found.labels), ("By fine label", found.fine_labels)):
        if labels is not None:
            drawn = scatter(title, found.plane, labels[rows], small=small, rule=not found.tsne)
            parts.append(drawn)
    if not parts:
        parts = [scatter("All embeddings", found.plane, small=small, rule=not found.tsne)]
    return grid(parts, wide=True)


def _neighbours(found: Diagnosis) -> Html:
    if found.neighbourhood is None:
        return Html("")
    if found.images is not None:
        near = found.neighbourhood
        parts = [neighbour_pictures(near, found.images)]
        if found.fine_labels is not None:
            by_fine = near.by(found.fine_labels)
            parts.append(neighbour_pictures(by_fine, found.images, kind="fine label"))
        return Html(picture_key(near) + grid(parts, wide=True))
    if found.names is not None:
        return neighbour_names(found.neighbourhood, found.names)
    return Html("")


def _explained(name: str, text: str) -> Html:
    return Html(f"{esc(name)}<small>{esc(text)}</small>" if text else esc(name))


def _kept(value: object) -> Html:
    said = number(value) if isinstance(value, int | float) else value
    return Html(f'<span class="keep">{esc(said)}</span>')


def _bracket(lower: float, upper: float) -> str:
    if lower == upper:
        return number(lower)
    return f"{number(lower)} to {number(upper)}"


def _tightness(one: ClassHealth) -> float:
    return math.inf if math.isnan(one.tightness) else one.tightness
