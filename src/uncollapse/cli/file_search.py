"""Nearest neighbours among the rows of a file of embeddings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from uncollapse._base.arrays import Array
from uncollapse._base.check import InputError, did_you_mean
from uncollapse.cli.neighbour_lists import FoundNeighbours, show_neighbours, write_neighbours
from uncollapse.cli.picture_files import find_pictures
from uncollapse.cli.plain_lines import say
from uncollapse.data.sources import Embeddings
from uncollapse.metrics.nearest_rows import nearest

__all__ = ["search_file"]

_MOST_SHEET = 100  # queries that a contact sheet has room for


def search_file(
    path: Path,
    found: Embeddings,
    like: Path | None,
    other: Embeddings | None,
    queries: list[str],
    k: int,
    out: Path | None,
    images: Path | None,
    cosine: bool,
) -> None:
    """Search the file for its own rows, or for those of another, and show or write what is near."""
    asked, place = (found, path) if other is None or like is None else (other, like)
    if asked.points.shape[1] != found.points.shape[1]:
        given = f"{place.name} with {asked.points.shape[1]}"
        raise InputError("--like", given, f"a file of {found.points.shape[1]} dimensions")
    rows = _rows_of(queries, asked, place)
    pictures = None
    if out is not None and out.suffix == ".png":
        if images is None or other is not None:
            allowed = "--images, the pictures of the file's own rows, and no --like"
            raise InputError("--out", out.name, f"for a .png {allowed}; or .csv, .json")
        if len(rows) > _MOST_SHEET:
            allowed = f"at most {_MOST_SHEET} queries for a .png; or .csv, .json"
            raise InputError("--out", f"{out.name} of {len(rows):,}", allowed)
        pictures = find_pictures(images, found.names)
    z, shelf = (_directions(one) if cosine else one for one in (asked.points, found.points))
    at = torch.from_numpy(rows)
    hits = nearest(
        torch.from_numpy(z)[at],
        torch.from_numpy(shelf),
        k,
        at if other is None else None,
        progress=None,
    )
    right = None
    if found.labels is not None and asked.labels is not None:
        mine, theirs = (one.labels.astype(str) for one in (asked, found))  # type: ignore[union-attr]
        right = (theirs[hits.rows.numpy()] == mine[rows][:, None]).tolist()
    names = [_names(one) for one in (asked, found)]
    shown = FoundNeighbours(
        [names[0][row] for row in rows], names[1], hits, found.labels, right,
        "cosine" if cosine else "distance",
    )  # fmt: skip
    console = Console()
    count = show_neighbours(console, shown)
    many = f"{len(rows):,} queries" if other is None else f"{len(rows):,} rows of {place.name}"
    part = f"the first {count} of {many}" if count < len(rows) else many
    line = f"{part} among {len(found):,} rows of {path.name}"
    if right is not None:
        share = float(np.mean([row[0] for row in right]))
        line += f"; the nearest has the query's label in {share:.2%} of {len(rows):,}"
    say(console, line + ("; --out writes them all" if count < len(rows) and out is None else ""))
    if out is not None:
        sheet = None
        if pictures is not None:
            near = [[pictures[row] for row in one] for one in hits.rows.tolist()]
            sheet = ([pictures[row] for row in rows.tolist()], near)
        say(console, f"wrote {write_neighbours(out, shown, sheet)}")


def _directions(points: Array) -> Array:
    norm = np.linalg.norm(points, axis=1, keepdims=True)
    unit: Array = points / np.where(norm > 0, norm, 1.0)
    return unit


def _names(found: Embeddings) -> list[str]:
    if found.names is None:
        return [str(row) for row in range(len(found))]
    return [str(name) for name in found.names]


def _rows_of(queries: list[str], found: Embeddings, path: Path) -> Array:
    """The rows meant: by name where the file has that name, by number otherwise; all if none."""

    if not queries:
        return np.arange(len(found))
    known: dict[str, int] = {}
    for row, name in enumerate([] if found.names is None else found.names):
        known.setdefault(str(name), row)
    rows = []
    for query in queries:
        if query in known:
            rows.append(known[query])
        elif query.isdecimal() and int(query) < len(found):
            rows.append(int(query))
        else:
            named = f" or a name, such as {next(iter(known))!r}" if known else ""
            near = did_you_mean(query, list(known)[:10_000])
            allowed = f"a row number of {path.name} below {len(found)}{named}"
            raise InputError("queries", f"{query!r}{near}", allowed)
    return np.array(rows)
