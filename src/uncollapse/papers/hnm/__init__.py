"""Items of *Mathematical justification of hard negative mining via isometric approximation*."""

from __future__ import annotations

from uncollapse.papers._item import Item
from uncollapse.papers.hnm._diameter_figure import figure_item
from uncollapse.papers.hnm.claims import CLAIMS_HNM
from uncollapse.papers.hnm.fig1 import FIG1
from uncollapse.papers.hnm.fig2 import FIG2
from uncollapse.papers.hnm.fig3 import FIG3
from uncollapse.papers.hnm.fig4 import FIG4
from uncollapse.papers.hnm.figures import DIAMETER_FIGURES

__all__ = ["HNM_ITEMS"]

_TOYS = (FIG1, FIG2, FIG3, FIG4)
HNM_ITEMS: tuple[Item, ...] = (*_TOYS, CLAIMS_HNM, *map(figure_item, DIAMETER_FIGURES))
