"""The nearest texts of a text, as a table or a file."""

from __future__ import annotations

from pathlib import Path

import torch
from rich.console import Console
from torch import nn

from uncollapse._base.check import InputError
from uncollapse.cli.neighbour_lists import FoundNeighbours, show_neighbours, write_neighbours
from uncollapse.cli.plain_lines import say
from uncollapse.cli.text_choice import GivenTexts, asked_texts
from uncollapse.metrics.nearest_rows import nearest
from uncollapse.training import embed

__all__ = ["search_texts"]


def search_texts(
    model: nn.Module,
    said: str,
    shelf: GivenTexts,
    queries: list[str],
    rows: list[int] | None,
    k: int,
    out: Path | None,
) -> None:
    """Search the texts of `shelf` for queries: some of its `rows`, or texts.

    What is near is shown with its labels, and for rows whether their label is the query's; `said`
    is a line about the model.
    """
    if out is not None and out.suffix == ".png":
        raise InputError("--out", out.name, "a .csv or .json file: texts have no pictures")
    console = Console()
    with console.status(f"embedding {len(shelf.data):,} texts"):
        points = embed(model, shelf.data)
        asked = asked_texts(queries) if rows is None else None
        z = points[torch.tensor(rows)] if asked is None else embed(model, asked.data)
    hits = nearest(z, points, k, None if rows is None else torch.tensor(rows))
    names, right = shelf.names, None
    if rows is not None and shelf.known:
        mine = shelf.data.labels[torch.tensor(rows)]
        right = (shelf.data.labels[hits.rows] == mine[:, None]).tolist()
    words = [names[row] for row in rows or []] if asked is None else asked.names
    found = FoundNeighbours(words, names, hits, shelf.all_labels, right)
    count = show_neighbours(console, found)
    more = f"the first {count} of {len(words):,} queries; " if count < len(words) else ""
    say(console, more + said)
    if out is not None:
        say(console, f"wrote {write_neighbours(out, found, None)}")
