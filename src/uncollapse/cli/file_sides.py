"""The two sides of a search in files: which rows are queries, and which the gallery."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from uncollapse._base.arrays import Array, class_ids
from uncollapse._base.check import InputError
from uncollapse.data.sources import Embeddings
from uncollapse.metrics import ReRanking

__all__ = ["Question", "Side", "fine_classes", "id_numbers", "queries_and_gallery"]


@dataclass(frozen=True)
class Question:
    """What the command line asks of a file."""

    split_column: str | None
    query_value: str
    gallery_value: str
    cameras: str | None
    metric: str
    ks: Sequence[str] | None
    intervals: str
    max_rows: int
    clustering: bool | None
    multiplier: int
    rerank: ReRanking | None = None


@dataclass(frozen=True)
class Side:
    """Queries, or what is searched."""

    points: Array
    labels: Array
    fine_labels: Array | None
    cameras: Array  # empty unless asked for

    def of(self, rows: Array) -> Side:
        """Some of the rows."""
        fine = None if self.fine_labels is None else self.fine_labels[rows]
        cameras = self.cameras[rows] if len(self.cameras) else self.cameras
        return Side(self.points[rows], self.labels[rows], fine, cameras)

    def __len__(self) -> int:
        return len(self.points)


def queries_and_gallery(
    path: Path,
    found: Embeddings,
    finer: Array | None,
    gallery_path: Path | None,
    other: Embeddings | None,
    asked: Question,
) -> tuple[Side, Side | None, str]:
    """Queries, the gallery (None: the queries), and which rows are neither, in words."""
    whole = _side(path, found, finer, asked.cameras)
    if other is not None and gallery_path is not None:
        if asked.split_column is not None:
            raise InputError("--gallery", gallery_path, "either a gallery or --split-column")
        if finer is not None:
            allowed = "none beside --gallery: give both files a column fine_labels"
            raise InputError("--fine-labels", "a file", allowed)
        beside = _side(gallery_path, other, None, asked.cameras)
        wide, here = beside.points.shape[1], whole.points.shape[1]
        if wide != here:
            allowed = f"a file of {here} dimensions, as {path.name} has"
            raise InputError("--gallery", f"{gallery_path.name} with {wide}", allowed)
        return whole, beside, ""
    if asked.split_column is None:
        return whole, None, ""
    words = np.array([str(value) for value in found.columns[asked.split_column]])
    parts = {}
    there = ", ".join(
        f"{word!r} ({(words == word).sum():,} rows)" for word in sorted(set(words.tolist()))[:8]
    )
    for option, value in (
        ("--query-value", asked.query_value),
        ("--gallery-value", asked.gallery_value),
    ):
        parts[option] = np.flatnonzero(words == value)
        if not len(parts[option]):
            allowed = f"what column {asked.split_column!r} of {path.name} says: {there}"
            raise InputError(option, repr(value), allowed)
    queries, gallery = (whole.of(rows) for rows in parts.values())
    spare = len(words) - len(queries) - len(gallery)
    if asked.query_value == asked.gallery_value:
        rest = len(words) - len(queries)
        return queries, None, f"{rest:,} rows of other splits left out" if rest else ""
    return queries, gallery, f"{spare:,} rows are neither" if spare else ""


def _side(path: Path, found: Embeddings, finer: Array | None, cameras: str | None) -> Side:
    if found.labels is None:
        allowed = "a file with labels: say with --label which column holds them, or give --labels"
        raise InputError(path.name, f"no labels among {_listed(found.held)}", allowed)
    fine = found.fine_labels if finer is None else finer
    if fine is not None and len(fine) != len(found):
        raise InputError("--fine-labels", f"{len(fine)} labels", f"{len(found)}, one a row")
    taken = np.empty(0) if cameras is None else found.columns[cameras]
    return Side(found.points, found.labels, fine, taken)


def fine_classes(queries: Side, gallery: Side | None) -> tuple[Array, Array | None]:
    """Fine classes as numbers: a fine label names a class inside its label only."""
    sides = [queries] if gallery is None else [queries, gallery]
    kinds = []
    for name in ("labels", "fine_labels"):
        values = [getattr(side, name) for side in sides]
        if len({value.dtype.kind in "iu" for value in values}) > 1:
            values = [value.astype(str) for value in values]
        kinds.append(class_ids(np.concatenate(values), None)[0])
    both = kinds[0] * (kinds[1].max() + 1) + kinds[1]
    return both[: len(queries)], None if gallery is None else both[len(queries) :]


def id_numbers(labels: Array) -> Array:
    """Ids as numbers where all are written as such (0002, -1), which junk and distractors need."""
    if labels.dtype.kind != "U" or not all(v.removeprefix("-").isdecimal() for v in labels):
        return labels
    return labels.astype(np.int64)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:12])
    return f"{shown} and {len(names) - 12} more" if len(names) > 12 else shown or "nothing"
