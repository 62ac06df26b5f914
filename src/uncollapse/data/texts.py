"""The user's own texts, in a CSV, JSONL or Parquet file with the columns text and label."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from uncollapse._base.arrays import MOST_BYTES
from uncollapse.data.labelled_tables import filled, read_labelled
from uncollapse.data.listing import DataError, DatasetInfo, Listing, TextSource
from uncollapse.data.readers import read_lines, read_table

__all__ = ["INFO", "TEXT_TABLES", "list_texts", "listing", "read_texts"]

TEXT_TABLES = (".csv", ".jsonl", ".parquet")

INFO = DatasetInfo(
    name="texts",
    title="Your own texts, in a CSV, JSONL or Parquet file",
    home="your own",
    licence="your own",
    layout="""\
columns: text, label, optional: fine_label, split
labels may be numbers or words; a .jsonl file has one object per line""",
    splits=("train", "val", "test", "query", "gallery", "all"),
    texts=True,
)


def listing(root: Path | None, split: str | None) -> Listing:
    """The rows of the file whose `split` is the one asked for; without that column all of them.

    Labels that are all whole numbers are kept; words are numbered by name over the whole file.
    """
    found = read_labelled("texts", root, split, "text", TEXT_TABLES)
    said = _texts(found.path, found.columns["text"])
    return list_texts(
        [said[place] for place in found.rows],
        [found.labels[place] for place in found.rows],
        None if found.fine_labels is None else [found.fine_labels[row] for row in found.rows],
        class_names=found.class_names,
        fine_names=found.fine_names,
        origin=str(found.path),
        split=found.split,
    )


def list_texts(
    texts: Sequence[str],
    labels: Iterable[int],
    fine_labels: Iterable[int] | None = None,
    *,
    class_names: Mapping[int, str],
    fine_names: Mapping[int, str],
    origin: str,
    split: str,
) -> Listing:
    """Texts with labels as a listing; those too long to be read whole are in its `converted`."""
    long = [f"row {place + 1}" for place, text in enumerate(texts) if _is_long(text)]
    return Listing(
        images=TextSource(tuple(texts)),
        labels=np.array(list(labels), np.int64),
        fine_labels=None if fine_labels is None else np.array(list(fine_labels), np.int64),
        class_names=class_names,
        fine_names=fine_names,
        converted={f"texts above {MOST_BYTES:,} bytes": tuple(long)} if long else {},
        origin=origin,
        split=split,
    )


def read_texts(path: Path) -> list[str]:
    """The texts of a file without labels: its column `text`, or the lines of a .txt file."""
    endings = (".txt", *TEXT_TABLES)
    if path.suffix not in endings:
        raise DataError(f"{path}: expected a file of texts, ending in {', '.join(endings)}")
    if path.suffix == ".txt":
        found = [line for line in read_lines(path, "texts") if line.strip()]
    elif not path.is_file():
        raise DataError(f"{path}: no such file")
    else:
        table = read_table(path, fill=True)
        if "text" not in table:
            raise DataError(f"{path}: no column 'text'; its columns are {', '.join(table)}")
        found = _texts(path, table["text"])
    if not found:
        raise DataError(f"{path}: no texts in it")
    return found


def _texts(path: Path, values: Sequence[object]) -> list[str]:
    texts = [filled(path, "text", place, value) for place, value in enumerate(values)]
    blank = next((place for place, text in enumerate(texts) if not text.strip()), None)
    if blank is not None:
        raise DataError(f"{path}: column 'text' is empty in row {blank + 1}")
    return texts


def _is_long(text: str) -> bool:
    return len(text) > MOST_BYTES or len(text.encode("utf-8", "replace")) > MOST_BYTES
