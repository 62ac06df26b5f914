"""HNM Fig. 10: ResNet-50 on Market-1501."""

from __future__ import annotations

from uncollapse.papers.hnm._setups import SCALE_TIMES, market
from uncollapse.papers.hnm._study import Panel, Study
from uncollapse.papers.hnm._trained import trained_item

__all__ = ["FIG10"]

# Appendix E: as Fig. 5, with a ResNet-50 from scratch.
_SETUPS = market("resnet50", steps=150)

FIG10 = trained_item(
    Study("fig10", "Fig. 10: ResNet-50", [Panel("batch", _SETUPS), Panel("dim", _SETUPS)]),
    summary="HNM Fig. 10: collapse of a ResNet-50",
    needs="Market-1501",
    time=SCALE_TIMES,
)
