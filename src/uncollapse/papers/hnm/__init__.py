"""Items of *Mathematical justification of hard negative mining via isometric approximation*."""

from __future__ import annotations

from uncollapse.papers._item import Item
from uncollapse.papers.hnm.claims import CLAIMS
from uncollapse.papers.hnm.fig1 import FIG1
from uncollapse.papers.hnm.fig2 import FIG2
from uncollapse.papers.hnm.fig3 import FIG3
from uncollapse.papers.hnm.fig4 import FIG4
from uncollapse.papers.hnm.fig5 import FIG5A, FIG5B
from uncollapse.papers.hnm.fig6 import FIG6
from uncollapse.papers.hnm.fig7 import FIG7
from uncollapse.papers.hnm.fig8 import FIG8
from uncollapse.papers.hnm.fig9 import FIG9
from uncollapse.papers.hnm.fig10 import FIG10
from uncollapse.papers.hnm.fig11 import FIG11
from uncollapse.papers.hnm.fig12 import FIG12

__all__ = ["HNM_ITEMS"]

_TRAINED = (FIG5A, FIG5B, FIG6, FIG7, FIG8, FIG9, FIG10, FIG11, FIG12)
HNM_ITEMS: tuple[Item, ...] = (FIG1, FIG2, FIG3, FIG4, CLAIMS, *_TRAINED)
