"""The papers' figures, tables and claims, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uncollapse._base.check import InputError, did_you_mean
from uncollapse._base.extras import lazy_names
from uncollapse.papers._item import (
    CATALOGUE,
    SCALES,
    Entry,
    Item,
    Made,
    Page,
    Recorded,
    Request,
    Table,
    read_recorded,
)

if TYPE_CHECKING:
    from uncollapse.papers._item import Item, Made, Page, Request, Table
    from uncollapse.papers._items import ITEMS

__all__ = [
    "CATALOGUE",
    "ITEMS",
    "SCALES",
    "Entry",
    "Item",
    "Made",
    "Page",
    "Recorded",
    "Request",
    "Table",
    "get_item",
    "read_recorded",
]

# Loaded when first used: to list the items takes nothing of what makes them.
__getattr__ = lazy_names(__name__, {"_items": "ITEMS"})


def get_item(name: str) -> Item:
    """The item of that name, or an error that lists the names.

    >>> get_item("fig4").name
    'fig4'
    """
    if name not in CATALOGUE:
        given = repr(name) + did_you_mean(name, CATALOGUE)
        raise InputError("item", given, "one of " + ", ".join(CATALOGUE))
    from uncollapse.papers._items import ITEMS

    return ITEMS[name]
