"""Tables that list a user's own samples: a column with each sample, its label, and a split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uncollapse.data.listing import DataError
from uncollapse.data.readers import read_table

__all__ = ["LabelledTable", "filled", "numbers", "read_labelled"]


@dataclass(frozen=True)
class LabelledTable:
    """A split of a table: `rows` are those of the split, and `labels`, ... are those of all rows.

    `columns` are all there are, by name.
    """

    path: Path
    columns: dict[str, list[Any]]
    split: str
    rows: list[int]
    labels: list[int]
    class_names: dict[int, str]
    fine_labels: list[int] | None
    fine_names: dict[int, str]


def read_labelled(
    name: str, root: Path | None, split: str | None, sample: str, endings: Sequence[str]
) -> LabelledTable:
    """Read the file of the dataset `name`, which has the columns `sample` and `label`.

    `split` is by default `train` where there is such a split, else `all`. Labels that are all whole
    numbers are kept; words are numbered by name over the whole file.
    """
    kinds = f"{', '.join(endings[:-1])} or {endings[-1]}"
    if root is None or not root.is_file():
        raise DataError(f"{name}: root must be a {kinds} file, got {root}")
    if root.suffix not in endings:
        raise DataError(f"{name}: expected a {kinds} file, got {root.name}")
    table = read_table(root, fill=True)
    for column in (sample, "label"):
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
        _numbered(root, "fine_label", table["fine_label"]) if "fine_label" in table else (None, {})
    )
    rows = [place for place in range(len(labels)) if split == "all" or splits[place] == split]
    return LabelledTable(root, table, split, rows, labels, names, fines, fine_names)


def filled(path: Path, column: str, place: int, value: Any) -> str:
    """The value of a cell as text; an empty one, or one that holds several, is an error."""
    if value is None or value == "":
        raise DataError(f"{path}: column {column!r} is empty in row {place + 1}")
    if isinstance(value, list | dict):
        what = f"holds a {type(value).__name__} in row {place + 1}"
        raise DataError(f"{path}: column {column!r} {what}; expected a word or a number")
    return str(value)


def numbers(path: Path, column: str, values: list[Any]) -> list[int]:
    """A column of whole numbers."""
    texts = [filled(path, column, place, value) for place, value in enumerate(values)]
    wrong = next((text for text in texts if not _whole(text)), None)
    if wrong is not None:
        allowed = "whole numbers of at most 18 digits"
        raise DataError(f"{path}: column {column!r} holds {wrong!r}; expected {allowed}")
    return [int(text) for text in texts]


def _numbered(path: Path, column: str, values: list[Any]) -> tuple[list[int], dict[int, str]]:
    """Labels as numbers, and the name of each number."""
    texts = [filled(path, column, place, value) for place, value in enumerate(values)]
    if all(map(_whole, texts)):
        return [int(text) for text in texts], {int(text): text for text in texts}
    numbered = {text: place for place, text in enumerate(sorted(set(texts)))}
    return [numbered[text] for text in texts], {place: text for text, place in numbered.items()}


def _whole(text: str) -> bool:
    """Whether it is a whole number that 64 bits hold; a longer one is a name."""
    digits = text.removeprefix("-")
    return digits.isdecimal() and len(digits) <= 18
