"""Items of *Mathematical justification of hard negative mining via isometric approximation*."""

from __future__ import annotations

from uncollapse.papers._item import Item
from uncollapse.papers.hnm.claims import CLAIMS_HNM
from uncollapse.papers.hnm.diameters import DIAMETER_FIGURES
from uncollapse.papers.hnm.plane_figures import FIG3, PLANE_FIGURES
from uncollapse.papers.hnm.strategies import MARKET_STRATEGIES

__all__ = ["HNM_ITEMS"]

_DRAWN = sorted((*PLANE_FIGURES, FIG3), key=lambda item: item.name)
HNM_ITEMS: tuple[Item, ...] = (
    *_DRAWN,
    CLAIMS_HNM,
    *DIAMETER_FIGURES,
    MARKET_STRATEGIES,
)
