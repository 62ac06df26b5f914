"""Items of *Reducing class collapse in metric learning with easy positive sampling*."""

from __future__ import annotations

from uncollapse.papers._item import Item
from uncollapse.papers.eps.fig2 import EPS_FIG2
from uncollapse.papers.eps.fig3a import EPS_FIG3A
from uncollapse.papers.eps.fig3b import EPS_FIG3B
from uncollapse.papers.eps.fig4 import EPS_FIG4
from uncollapse.papers.eps.fig5 import EPS_FIG5
from uncollapse.papers.eps.fig6 import EPS_FIG6
from uncollapse.papers.eps.table1 import TABLE1
from uncollapse.papers.eps.table2 import TABLE2
from uncollapse.papers.eps.table3 import TABLE3
from uncollapse.papers.eps.table4 import TABLE4
from uncollapse.papers.eps.table5 import TABLE5
from uncollapse.papers.eps.table6 import TABLE6

__all__ = ["EPS_ITEMS"]

EPS_ITEMS: tuple[Item, ...] = (
    *(TABLE1, EPS_FIG2, TABLE2, TABLE3, TABLE4, TABLE5, TABLE6),
    *(EPS_FIG3A, EPS_FIG3B, EPS_FIG4, EPS_FIG5, EPS_FIG6),
)
