"""Every item of the catalogue with what makes it: both papers, wholly imported."""

from __future__ import annotations

from uncollapse.papers._item import Item
from uncollapse.papers.eps import EPS_ITEMS
from uncollapse.papers.hnm import HNM_ITEMS

__all__ = ["ITEMS"]

ITEMS: dict[str, Item] = {item.name: item for item in (*HNM_ITEMS, *EPS_ITEMS)}
