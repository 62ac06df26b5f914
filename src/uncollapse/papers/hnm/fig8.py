"""HNM Fig. 8: Stanford Online Products, in batches drawn at random."""

from __future__ import annotations

from uncollapse.papers.hnm._setups import SCALE_TIMES, uniform
from uncollapse.papers.hnm._study import Panel, Study
from uncollapse.papers.hnm._trained import trained_item

__all__ = ["FIG8"]

# Appendix D: ResNet-18 from scratch, margin 0, 3 repeats, "a fixed batch size without the
# same-class guarantees".
_SETUPS = uniform("sop")

FIG8 = trained_item(
    Study(
        "fig8",
        "Fig. 8: Stanford Online Products",
        [Panel("batch", _SETUPS), Panel("dim", _SETUPS)],
    ),
    summary="HNM Fig. 8: collapse on Stanford Online Products",
    needs="Stanford Online Products",
    time=SCALE_TIMES,
)
