"""The papers' figures, tables and claims, by name."""

from uncollapse.papers.items import CATALOGUE, SCALES, Page, get_item, read_recorded

__all__ = ["CATALOGUE", "SCALES", "Page", "get_item", "read_recorded"]
