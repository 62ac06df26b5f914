"""The papers' figures, tables and claims, by name."""

from uncollapse.papers.items import (
    CATALOGUE,
    SCALES,
    Item,
    Made,
    Page,
    Recorded,
    Request,
    get_item,
    read_recorded,
)

__all__ = [
    "CATALOGUE",
    "SCALES",
    "Item",
    "Made",
    "Page",
    "Recorded",
    "Request",
    "get_item",
    "read_recorded",
]
