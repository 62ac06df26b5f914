"""The papers' figures, tables and claims, by name."""

from uncollapse.papers.items import CATALOGUE, SCALES, ItemPage, get_item, read_recorded

__all__ = ["CATALOGUE", "SCALES", "ItemPage", "get_item", "read_recorded"]
