"""Some queries and what lies nearest to them: as pictures, or as texts or names without them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from uncollapse._base.arrays import Array, ArrayLike, points
from uncollapse.health.sample import balanced_rows
from uncollapse.metrics.nearest_rows import nearest
from uncollapse.report.contact_sheets import contact_sheet
from uncollapse.report.pictures import Images, data_uri

__all__ = ["Neighbourhood", "neighbourhood", "sheet_picture", "short_line", "word_lists"]

_LONGEST = 240  # characters of a text on a page


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


def sheet_picture(
    found: Neighbourhood,
    images: Images | Mapping[int, Any],
    *,
    kind: str = "label",
    title: str = "",
) -> dict[str, object]:
    """A contact sheet for a page: the query in the first column, ✓ right and ✗ wrong."""
    sheet = contact_sheet(
        [images[int(q)] for q in found.queries],
        [[images[int(r)] for r in row] for row in found.rows],
        None if found.right is None else found.right.tolist(),
    )
    words = found.words(kind)
    return {
        "source": data_uri(sheet),
        "width": sheet.width,
        "height": sheet.height,
        "words": words,
        "title": title or words,
        "small": words if title else "",
    }


def word_lists(
    found: Neighbourhood,
    words: Array | Mapping[int, str],
    *labels: Array | None,
    kind: str = "label",
    title: str = "",
) -> dict[str, object]:
    """Texts or names for a page instead of pictures: each query with what lies nearest to it.

    `words` and `labels` (coarse, fine; those that are known) are by row.
    """
    known = [one for one in labels if one is not None]

    def shown(row: int, right: bool | None) -> dict[str, str]:
        return {
            "text": short_line(str(words[row])),
            "label": " / ".join(str(one[row]) for one in known),
            "glyph": {None: "", True: "✓", False: "✗"}[right],
            "tone": {None: "", True: "good", False: "bad"}[right],
        }

    asked = []
    for q, row in enumerate(found.rows.tolist()):
        marks = [None] * len(row) if found.right is None else found.right[q].tolist()
        near = [shown(r, mark) for r, mark in zip(row, marks, strict=True)]
        asked.append(shown(int(found.queries[q]), None) | {"near": near})
    return {"title": title, "words": found.words(kind), "asked": asked}


def short_line(text: str) -> str:
    """One line, its beginning where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
