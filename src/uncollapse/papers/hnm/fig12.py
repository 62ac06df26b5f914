"""HNM Fig. 12: a two-layer convnet on Market-1501, or on Omniglot letters where that is missing."""

from __future__ import annotations

from uncollapse.papers.hnm._setups import SCALE_TIMES, market, omniglot_letters
from uncollapse.papers.hnm._study import Panel, Study
from uncollapse.papers.hnm._trained import trained_item

__all__ = ["FIG12"]

# Appendix E: as Fig. 5, with "a simple 2-layer convolutional network" from scratch.
_MARKET = market("conv2", steps=1000)
_SETUPS = {**_MARKET, "laptop": [*_MARKET["laptop"], omniglot_letters()]}

FIG12 = trained_item(
    Study(
        "fig12",
        "Fig. 12: a two-layer convnet",
        [Panel("batch", _SETUPS), Panel("dim", _SETUPS)],
    ),
    summary="HNM Fig. 12: collapse of a two-layer convnet",
    needs="Market-1501, or Omniglot on a laptop",
    time=SCALE_TIMES,
)
