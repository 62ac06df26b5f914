"""The ROC curve of a verification, over false accept rates of all sizes, and its page."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from uncollapse.charts import HEIGHT, WIDTH, Axes, Chart, Scale, area, save
from uncollapse.charts.marks import Mark
from uncollapse.charts.numbers import percent
from uncollapse.metrics import VerificationResult
from uncollapse.report.page import Page
from uncollapse.report.tables import Table

__all__ = ["roc_chart", "save_verification", "verification_page"]

ENDINGS = (".html", ".png", ".svg")


def roc_chart(found: VerificationResult, title: str = "ROC", *, wide: float = 1.0) -> Chart:
    """True accept rate over the logarithm of the false one; a marker at each FAR that was asked.

    The curve begins at one different pair accepted: below that there is nothing to see.
    """
    if found.roc is None:
        raise ValueError("a result without its curve")
    least = 10.0 ** math.floor(math.log10(1 / found.different))
    width, height = WIDTH * wide, HEIGHT * wide
    across, up = area(width, height, y_label=True)
    axes = Axes(Scale(least, 1.0, *across, "log"), Scale(0.0, 1.0, *up))
    rates = np.maximum(found.roc.far, least)
    marks: list[Mark] = [*axes.frame("false accept rate", "true accept rate", share=True)]
    chance = np.geomspace(least, 1.0, 60)
    marks.append(axes.inside(axes.line(chance.tolist(), chance.tolist(), "soft", dash=(2, 4))))
    x, y = _seen(rates, found.roc.tar, least)
    marks.append(axes.line(x, y, "s0", tip=f"area {found.auc:.4f}"))
    shown = {rate: tar for rate, tar in found.tar.items() if tar is not None}
    tips = [f"TAR {percent(tar)} at FAR {rate:g}" for rate, tar in shown.items()]
    marks.append(axes.points(list(shown), list(shown.values()), "circle", "s0", tips=tips))
    note = f"{found.same:,} same and {found.different:,} different pairs; dotted: chance"
    words = ". ".join([f"Area {found.auc:.4f}, equal error rate {percent(found.eer)}", *tips])
    return Chart(title, words, tuple(marks), width, height, note)


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


def _seen(x: np.ndarray, y: np.ndarray, least: float) -> tuple[list[float], list[float]]:
    """Places that can be told apart: at most a few hundred along the logarithm of x."""
    column = np.round(np.log10(x / least) * 100).astype(int)
    last = np.r_[np.flatnonzero(np.diff(column)), len(x) - 1]
    first = np.r_[0, last[:-1] + 1]
    kept = np.unique(np.r_[first, last])
    return x[kept].tolist(), y[kept].tolist()
