"""Some queries and what lies nearest to them: as pictures, or as names where there are none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from uncollapse._base.arrays import Array, ArrayLike, points
from uncollapse.health.sample import balanced_rows
from uncollapse.report.blocks import note, picture, table
from uncollapse.report.contact_sheet import contact_sheet
from uncollapse.report.markup import Html
from uncollapse.report.pictures import Images
from uncollapse.training.lookup import nearest

__all__ = [
    "Neighbourhood",
    "neighbour_names",
    "neighbour_pictures",
    "neighbourhood",
    "picture_key",
]


@dataclass(frozen=True)
class Neighbourhood:
    """`rows[q]` are nearest to row `queries[q]`; `right` says which share its label, if known."""

    queries: Array
    rows: Array
    right: Array | None = None

    def by(self, labels: Array) -> Neighbourhood:
        """The same neighbours, judged by other labels."""
        return replace(self, right=labels[self.rows] == labels[self.queries][:, None])

    def words(self, kind: str = "label") -> str:
        """What the pictures show, in a sentence."""
        if self.right is None:
            return f"{len(self.queries)} random queries and their {self.rows.shape[1]} neighbours"
        return f"{int(self.right.sum())} of {self.right.size} neighbours share the query's {kind}"


def neighbourhood(
    embeddings: ArrayLike,
    labels: Array | None = None,
    *,
    queries: int = 6,
    k: int = 6,
    seed: int = 0,
) -> Neighbourhood:
    """Queries drawn at random, every class alike, each with the k rows nearest to it.

    >>> found = neighbourhood([[0.0], [1.0], [5.0], [6.5]], np.array([0, 0, 1, 1]), k=1)
    >>> found.rows.tolist(), found.right.tolist()
    ([[1], [0], [3], [2]], [[True], [True], [True], [True]])
    """
    z = points(embeddings, "embeddings", min_rows=2).detach().cpu()
    ids = np.zeros(len(z), np.int64)
    if labels is not None:
        ids = np.unique(labels, return_inverse=True)[1]
    chosen = balanced_rows(ids, queries, np.random.default_rng(seed))
    chosen = chosen[np.argsort(ids[chosen], kind="stable")]
    at = torch.from_numpy(chosen)
    found = Neighbourhood(chosen, nearest(z[at], z, min(k, len(z) - 1), exclude=at).rows.numpy())
    return found if labels is None else found.by(labels)


def neighbour_pictures(
    found: Neighbourhood,
    images: Images | Mapping[int, Any],
    *,
    kind: str = "label",
    title: str = "",
) -> Html:
    """A contact sheet: the query in the first column, ✓ right and ✗ wrong; `images` by row."""
    sheet = contact_sheet(
        [images[int(q)] for q in found.queries],
        [[images[int(r)] for r in row] for row in found.rows],
        None if found.right is None else found.right.tolist(),
    )
    words = found.words(kind)
    return picture(sheet, words, title or words, words if title else "")


def picture_key(found: Neighbourhood) -> Html:
    """How to read a contact sheet."""
    text = "First column: a query drawn at random. Then its neighbours, nearest first."
    if found.right is not None:
        text += " ✓ and a whole frame: the same label; ✗ and a broken frame: another one."
    return note(text)


def neighbour_names(found: Neighbourhood, names: Array) -> Html:
    """A table of names, for embeddings of what is not a picture."""
    rows = []
    for q, row in enumerate(found.rows):
        signs = [""] * len(row)
        if found.right is not None:
            signs = ["✓ " if right else "✗ " for right in found.right[q]]
        near = " · ".join(f"{sign}{names[r]}" for sign, r in zip(signs, row, strict=True))
        rows.append([names[found.queries[q]], near])
    return Html(note(found.words() + ".") + table(["query", "nearest first"], rows))
