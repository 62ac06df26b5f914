"""The papers' figures, tables and claims, by name."""

from __future__ import annotations

from uncollapse._base.check import InputError, did_you_mean
from uncollapse.papers._item import SCALES, Item, Made, Request
from uncollapse.papers._page import Page, Table
from uncollapse.papers._recorded import Recorded, read_recorded
from uncollapse.papers.eps import EPS_ITEMS
from uncollapse.papers.hnm import HNM_ITEMS

__all__ = [
    "ITEMS",
    "SCALES",
    "Item",
    "Made",
    "Page",
    "Recorded",
    "Request",
    "Table",
    "get_item",
    "read_recorded",
]

ITEMS: dict[str, Item] = {item.name: item for item in (*HNM_ITEMS, *EPS_ITEMS)}


def get_item(name: str) -> Item:
    """The item of that name, or an error that lists the names.

    >>> get_item("fig4").name
    'fig4'
    """
    if name not in ITEMS:
        given = repr(name) + did_you_mean(name, ITEMS)
        raise InputError("item", given, "one of " + ", ".join(ITEMS))
    return ITEMS[name]
