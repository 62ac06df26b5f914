"""HNM Fig. 11: GoogLeNet on Market-1501."""

from __future__ import annotations

from collections.abc import Sequence

from uncollapse.papers._beside import Claim
from uncollapse.papers.hnm._point import Point
from uncollapse.papers.hnm._setups import SCALE_TIMES, market
from uncollapse.papers.hnm._study import Panel, Study
from uncollapse.papers.hnm._trained import trained_item

__all__ = ["FIG11"]


def _outliers(panels: Sequence[Sequence[Point]]) -> list[Claim]:
    """Appendix E: "a few outliers for d > 256", put down to memory warnings."""
    wide = [p for p in panels[1] if p.dim > 256]
    fell = sum(p.collapsed for p in wide)
    ours = f"{fell} of {len(wide)} runs" if wide else "no such dimension at this scale"
    return [Claim("collapse at d > 256", "a few, blamed on memory", ours, None)]


# Appendix E: as Fig. 5, with a GoogLeNet from scratch.
_SETUPS = market("googlenet", steps=150)

FIG11 = trained_item(
    Study(
        "fig11",
        "Fig. 11: GoogLeNet",
        [Panel("batch", _SETUPS), Panel("dim", _SETUPS)],
        _outliers,
    ),
    summary="HNM Fig. 11: collapse of a GoogLeNet",
    needs="Market-1501",
    time=SCALE_TIMES,
)
