"""The user's own images, listed in a CSV or Parquet file with the columns path and label."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from uncollapse.data.listing import DatasetInfo, ImageRef, Listing, Row, list_rows
from uncollapse.data.readers import TABLE_FILES, read_table
from uncollapse.data.types import DataError

__all__ = ["INFO", "listing"]

INFO = DatasetInfo(
    name="manifest",
    title="Your own images, listed in a CSV or Parquet file",
    home="your own",
    licence="your own",
    layout="""\
columns: path (relative to the file's folder, or absolute), label,
         optional: fine_label, camera (a whole number), split
labels may be numbers or words""",
    splits=("train", "val", "test", "query", "gallery", "all"),
    size=(224, 224),
    fit="cover",
)


def listing(root: Path | None, split: str | None) -> Listing:
    """The rows of the file whose `split` is the one asked for; without that column all of them.

    Labels that are all whole numbers are kept; words are numbered by name over the whole file.
    """
    if root is None or not root.is_file():
        raise DataError(f"manifest: root must be a .csv or .parquet file, got {root}")
    if root.suffix not in TABLE_FILES:
        raise DataError(f"manifest: expected a .csv or .parquet file, got {root.name}")
    table = read_table(root, fill=True)
    for column in ("path", "label"):
        if column not in table:
            found = ", ".join(table) or "none"
            raise DataError(f"{root}: no column {column!r}; its columns are {found}")
    splits = [str(value) for value in table.get("split", [])]
    split = split or ("train" if "train" in splits else "all")
    if split != "all" and split not in splits:
        there = ", ".join(sorted(set(splits)) + ["all"])
        raise DataError(f"{root}: no rows of split {split!r}; there is: {there}")
    labels, names = _numbered(root, "label", table["label"])
    fines, fine_names = (
        _numbered(root, "fine_label", table["fine_label"]) if "fine_label" in table else ([], {})
    )
    cameras = _numbers(root, "camera", table["camera"]) if "camera" in table else []
    rows = [
        Row(
            ImageRef(root.parent / _filled(root, "path", place, path)),
            labels[place],
            fines[place] if fines else None,
            cameras[place] if cameras else None,
        )
        for place, path in enumerate(table["path"])
        if split == "all" or splits[place] == split
    ]
    return list_rows(rows, class_names=names, fine_names=fine_names, origin=str(root), split=split)


def _filled(path: Path, column: str, place: int, value: Any) -> str:
    if value is None or value == "":
        raise DataError(f"{path}: column {column!r} is empty in row {place + 1}")
    return str(value)


def _numbers(path: Path, column: str, values: list[Any]) -> list[int]:
    texts = [_filled(path, column, place, value) for place, value in enumerate(values)]
    wrong = next((text for text in texts if not _whole(text)), None)
    if wrong is not None:
        allowed = "whole numbers of at most 18 digits"
        raise DataError(f"{path}: column {column!r} holds {wrong!r}; expected {allowed}")
    return [int(text) for text in texts]


def _numbered(path: Path, column: str, values: list[Any]) -> tuple[list[int], dict[int, str]]:
    """Labels as numbers, and the name of each number."""
    texts = [_filled(path, column, place, value) for place, value in enumerate(values)]
    if all(map(_whole, texts)):
        return [int(text) for text in texts], {int(text): text for text in texts}
    numbers = {text: place for place, text in enumerate(sorted(set(texts)))}
    return [numbers[text] for text in texts], {place: text for text, place in numbers.items()}


def _whole(text: str) -> bool:
    """Whether it is a whole number that 64 bits hold; a longer one is a name."""
    digits = text.removeprefix("-")
    return digits.isdecimal() and len(digits) <= 18
