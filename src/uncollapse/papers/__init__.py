"""The papers' figures, tables and claims, by name."""

from __future__ import annotations

from rich.table import Table

from uncollapse._base.check import InputError
from uncollapse.papers._item import SCALES, Item, Request
from uncollapse.papers.eps import EPS_ITEMS
from uncollapse.papers.eps_claims import CLAIMS_EPS
from uncollapse.papers.eps_noise_figure import FIG_NOISE
from uncollapse.papers.hnm import HNM_ITEMS

__all__ = ["ITEMS", "Item", "Request", "get_item", "listing_table"]

_ALL = (*HNM_ITEMS, CLAIMS_EPS, FIG_NOISE, *EPS_ITEMS)
ITEMS: dict[str, Item] = {item.name: item for item in _ALL}


def get_item(name: str) -> Item:
    """The item of that name, or an error that lists the names.

    >>> get_item("fig4").name
    'fig4'
    """
    if name not in ITEMS:
        raise InputError("item", repr(name), "one of " + ", ".join(ITEMS))
    return ITEMS[name]


def listing_table() -> Table:
    """All items as a table for the terminal.

    >>> listing_table().row_count == len(ITEMS)
    True
    """
    table = Table(box=None, pad_edge=False)
    for heading in ("name", "what it makes", "needs", *SCALES):
        least = 18 if heading == "what it makes" else None  # also where a terminal is narrow
        table.add_column(heading, no_wrap=heading == "name", min_width=least)
    for item in ITEMS.values():
        times = (item.time_at(scale) or "-" for scale in SCALES)
        table.add_row(f"[bold]{item.name}[/bold]", item.summary, item.needs, *times)
    return table
