"""HNM Fig. 7: the right of Fig. 5 again, with margins 0.01 and 0.05."""

from __future__ import annotations

from uncollapse.papers.hnm._directions import margin_claims
from uncollapse.papers.hnm._setups import SCALE_TIMES, market
from uncollapse.papers.hnm._study import Panel, Study
from uncollapse.papers.hnm._trained import trained_item

__all__ = ["FIG7"]

# Appendix C: as Fig. 5 (right), margins 0.01 and 0.05.
_SETUPS = market("resnet18")

FIG7 = trained_item(
    Study(
        "fig7",
        "Fig. 7: diameter and dimension with a margin",
        [Panel("dim", _SETUPS, margin) for margin in (0.01, 0.05)],
        margin_claims,
    ),
    summary="HNM Fig. 7: collapse against the dimension, margins 0.01 and 0.05",
    needs="Market-1501",
    time=SCALE_TIMES,
)
