"""HNM Fig. 6: the left of Fig. 5 again, with margins 0.01 and 0.05."""

from __future__ import annotations

from collections.abc import Sequence

from uncollapse.papers._beside import Claim
from uncollapse.papers.hnm._directions import margin_claims, threshold
from uncollapse.papers.hnm._point import Point
from uncollapse.papers.hnm._setups import SCALE_TIMES, market
from uncollapse.papers.hnm._study import Panel, Study
from uncollapse.papers.hnm._trained import trained_item

__all__ = ["FIG6"]


def _same_threshold(panels: Sequence[Sequence[Point]]) -> list[Claim]:
    """Appendix C: a "collapse threshold around N = 128 independent of α"."""
    found = [threshold(points) for points in panels]
    words = [f"N = {n}" if n else "none" for n in found]
    ours = f"half the runs collapse from {words[0]} (smaller margin), {words[1]} (larger)"
    says = "around N = 128 for both margins"
    same = found[0] == found[1] if any(found) else None
    return [*margin_claims(panels), Claim("batch size at which collapse begins", says, ours, same)]


# Appendix C: as Fig. 5 (left), margins 0.01 and 0.05.
_SETUPS = market("resnet18")

FIG6 = trained_item(
    Study(
        "fig6",
        "Fig. 6: diameter and batch size with a margin",
        [Panel("batch", _SETUPS, margin) for margin in (0.01, 0.05)],
        _same_threshold,
    ),
    summary="HNM Fig. 6: collapse against the batch size, margins 0.01 and 0.05",
    needs="Market-1501",
    time=SCALE_TIMES,
)
