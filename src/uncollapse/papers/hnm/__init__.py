"""Items of *Mathematical justification of hard negative mining via isometric approximation*."""

from __future__ import annotations

from uncollapse.papers._item import Item
from uncollapse.papers.hnm.claims import CLAIMS
from uncollapse.papers.hnm.fig1 import FIG1
from uncollapse.papers.hnm.fig2 import FIG2
from uncollapse.papers.hnm.fig3 import FIG3
from uncollapse.papers.hnm.fig4 import FIG4

__all__ = ["HNM_ITEMS"]

HNM_ITEMS: tuple[Item, ...] = (FIG1, FIG2, FIG3, FIG4, CLAIMS)
