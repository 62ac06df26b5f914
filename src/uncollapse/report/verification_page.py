"""The page of a verification: the ROC curve over the logarithm of FAR, beside its figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from uncollapse._base.arrays import Array
from uncollapse._base.table import Table, percent
from uncollapse.charts import Axes, Chart, Scale, area, empty, save
from uncollapse.charts.marks import Mark, Points
from uncollapse.metrics import VerificationResult
from uncollapse.report.page import Page


def save_verification(
    result: VerificationResult, table: Table, path: Path, title: str, lead: str = ""
) -> Path:
    """Write the page (.html), or the curve alone (.png, .svg)."""
    if path.suffix != ".html":
        return save(roc_chart(result, title), path)
    content = {"title": title, "lead": lead, "chart": roc_chart(result), "table": table}
    return Page("verification.html.j2", content).save(path)


def roc_chart(result: VerificationResult, title: str = "Same pairs accepted") -> Chart:
    """True accept rate over the logarithm of the false one; a marker at each FAR that was asked.

    The curve begins where one different pair is accepted: what is below has no place there.
    """
    if result.roc is None:
        return empty(title, "The result has no curve.")
    least = min(1 / result.different, 0.1)
    across, up = area(y_label=True)
    axes = Axes(Scale(least, 1.0, *across, log=True), Scale(0.0, 1.0, *up))
    heights = {share / 100: str(share) for share in range(0, 101, 20)}
    frame = axes.frame("false accept rate", "true accept rate, %", y_ticks=heights)
    chance = np.geomspace(least, 1.0, 60).tolist()
    x, y = _seen(np.maximum(result.roc.far, least), result.roc.tar, least)
    known = {rate: tar for rate, tar in result.tar.items() if tar is not None}
    tips = [f"TAR {percent(tar)} at FAR {rate:g}" for rate, tar in known.items()]
    marks: list[Mark] = [
        *frame,
        axes.line(chance, chance, "soft", dash=(2, 4)),
        axes.line(x, y, "s0", tip=f"area {result.auc:.4f}"),
        Points(axes.places(list(known), list(known.values())), tips=tips),
    ]
    note = f"{result.same:,} same and {result.different:,} different pairs; dotted: chance"
    words = ". ".join([f"Area {result.auc:.4f}, equal error rate {percent(result.eer)}", *tips])
    return Chart(title, words, marks, note=note)


def _seen(x: Array, y: Array, least: float) -> tuple[list[float], list[float]]:
    """Places that can be told apart: at most a few hundred along the logarithm of x."""
    column = np.round(np.log10(x / least) * 100).astype(int)
    last = np.r_[np.flatnonzero(np.diff(column)), len(x) - 1]
    first = np.r_[0, last[:-1] + 1]
    kept = np.unique(np.r_[first, last])
    return x[kept].tolist(), y[kept].tolist()
