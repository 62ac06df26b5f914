"""HNM Fig. 5: ResNet-18 on Market-1501; the diameter against batch size and dimension."""

from __future__ import annotations

from uncollapse.papers.hnm._setups import SCALE_TIMES, market
from uncollapse.papers.hnm._study import Panel, Study
from uncollapse.papers.hnm._trained import trained_item

__all__ = ["FIG5A", "FIG5B"]

# §4: ResNet-18 from scratch, margin 0, 40,000 steps, 3 repeats. Left: d = 128, P in {2, 4, 8, 18}
# and K in {2, 4, 8, 16, 32}. Right: P = 8, K = 4, d from 4 to 1024.
_SETUPS = market("resnet18")

FIG5A = trained_item(
    Study("fig5a", "Fig. 5 (left): diameter and batch size", [Panel("batch", _SETUPS)]),
    summary="HNM Fig. 5, left: collapse against the batch size (ResNet-18)",
    needs="Market-1501",
    time=SCALE_TIMES,
)
FIG5B = trained_item(
    Study("fig5b", "Fig. 5 (right): diameter and dimension", [Panel("dim", _SETUPS)]),
    summary="HNM Fig. 5, right: collapse against the dimension (ResNet-18)",
    needs="Market-1501",
    time=SCALE_TIMES,
)
