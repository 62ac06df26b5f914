"""How large and how varied the classes of an embedding are, in two numbers."""

from __future__ import annotations

import numpy as np

from uncollapse.health import Health
from uncollapse.report.markup import percent

__all__ = ["class_figures"]


def class_figures(health: Health) -> dict[str, object]:
    """By the name to show them under; only those that are known."""
    shown: dict[str, object] = {}
    ratios = [one.ratio for one in health.classes if one.count > 1]
    if ratios:
        shown["median class diameter, of the whole"] = percent(float(np.median(ratios)))
    modes = list(health.modes_per_class.values())
    if modes:
        shown["modes per class, mean"] = float(np.mean(modes))
    return shown
