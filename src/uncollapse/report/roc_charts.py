"""The ROC curve of a verification, over false accept rates of all sizes, and its page."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse._base.table import percent
from uncollapse.charts import Axes, Chart, Scale, area, empty, save
from uncollapse.charts.marks import HEIGHT, WIDTH, Mark, Points
from uncollapse.metrics import VerificationResult
from uncollapse.report.page import Page, Table

__all__ = ["roc_chart", "save_verification", "verification_page"]


def roc_chart(
    found: VerificationResult, title: str = "Same pairs accepted", *, wide: float = 1.0
) -> Chart:
    """True accept rate over the logarithm of the false one; a marker at each FAR that was asked.

    The curve begins where one different pair is accepted: what is below has no place there.
    """
    if found.roc is None:
        return empty(title, "The result has no curve.")
    least = min(1 / found.different, 0.1)
    width, height = WIDTH * wide, HEIGHT * wide
    across, up = area(width, height, y_label=True)
    axes = Axes(Scale(least, 1.0, *across, "log"), Scale(0.0, 1.0, *up))
    rates = np.maximum(found.roc.far, least)
    heights = {share / 100: str(share) for share in range(0, 101, 20)}
    words = ("false accept rate", "true accept rate, %")
    marks: list[Mark] = [*axes.frame(*words, y_ticks=heights)]
    chance = np.geomspace(least, 1.0, 60)
    marks.append(axes.inside(axes.line(chance.tolist(), chance.tolist(), "soft", dash=(2, 4))))
    x, y = _seen(rates, found.roc.tar, least)
    marks.append(axes.line(x, y, "s0", tip=f"area {found.auc:.4f}"))
    shown = {rate: tar for rate, tar in found.tar.items() if tar is not None}
    tips = [f"TAR {percent(tar)} at FAR {rate:g}" for rate, tar in shown.items()]
    marks.append(Points(axes.places(list(shown), list(shown.values())), tips=tips))
    note = f"{found.same:,} same and {found.different:,} different pairs; dotted: chance"
    said = ". ".join([f"Area {found.auc:.4f}, equal error rate {percent(found.eer)}", *tips])
    return Chart(title, said, tuple(marks), width, height, note)


def verification_page(found: VerificationResult, table: Table, title: str, lead: str = "") -> Page:
    """The curve beside its figures."""
    content = {"title": title, "lead": lead, "chart": roc_chart(found), "table": table}
    return Page("verification.html.j2", content)


def save_verification(
    found: VerificationResult, table: Table, path: Path, title: str, lead: str = ""
) -> Path:
    """Write the page (.html), or the curve alone (.png, .svg)."""
    if path.suffix == ".html":
        return verification_page(found, table, title, lead).save(path)
    return save(roc_chart(found, title, wide=1.5), path)


def _seen(x: Array, y: Array, least: float) -> tuple[list[float], list[float]]:
    """Places that can be told apart: at most a few hundred along the logarithm of x."""
    column = np.round(np.log10(x / least) * 100).astype(int)
    last = np.r_[np.flatnonzero(np.diff(column)), len(x) - 1]
    first = np.r_[0, last[:-1] + 1]
    kept = np.unique(np.r_[first, last])
    return x[kept].tolist(), y[kept].tolist()
