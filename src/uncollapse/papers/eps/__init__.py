"""Items of *Reducing class collapse in metric learning with easy positive sampling*."""

from __future__ import annotations

from uncollapse.papers._item import Item
from uncollapse.papers.eps.coarse_to_fine import COARSE_TO_FINE
from uncollapse.papers.eps.curve_figures import CURVE_FIGURES
from uncollapse.papers.eps.embedding_figures import EMBEDDING_FIGURES
from uncollapse.papers.eps.noise_figure import CLAIMS_EPS, FIG_NOISE
from uncollapse.papers.eps.seed_table import TABLE5
from uncollapse.papers.eps.tables import TABLE1, TABLE2, TABLE3, TABLE4, TABLE6

__all__ = ["EPS_ITEMS"]

_TABLES = (TABLE1, TABLE2, TABLE3, TABLE4, TABLE5, TABLE6)
_FIGURES = sorted((*EMBEDDING_FIGURES, *CURVE_FIGURES), key=lambda item: item.name)
EPS_ITEMS: tuple[Item, ...] = (
    CLAIMS_EPS,
    FIG_NOISE,
    *_TABLES,
    *_FIGURES,
    COARSE_TO_FINE,
)
