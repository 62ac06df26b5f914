"""Items of *Reducing class collapse in metric learning with easy positive sampling*."""

from __future__ import annotations

from uncollapse.papers._item import CATALOGUE, Item
from uncollapse.papers.eps.coarse_to_fine import COARSE_TO_FINE
from uncollapse.papers.eps.curve_figures import CURVE_FIGURES
from uncollapse.papers.eps.embedding_figures import EMBEDDING_FIGURES
from uncollapse.papers.eps.noise_figure import CLAIMS_EPS, FIG_NOISE
from uncollapse.papers.eps.tables import EPS_TABLES

__all__ = ["EPS_ITEMS"]

_MADE = (CLAIMS_EPS, FIG_NOISE, *EPS_TABLES, *EMBEDDING_FIGURES, *CURVE_FIGURES, COARSE_TO_FINE)
EPS_ITEMS: tuple[Item, ...] = tuple(
    sorted(_MADE, key=lambda item: list(CATALOGUE).index(item.name))
)
