"""The user's own images, listed in a CSV or Parquet file with the columns path and label."""

from __future__ import annotations

from pathlib import Path

from uncollapse.data.labelled_tables import filled, numbers, read_labelled
from uncollapse.data.listing import DatasetInfo, ImageRef, Listing, Row, list_rows

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
    found = read_labelled("manifest", root, split, "path", (".csv", ".parquet"))
    path, columns, fines = found.path, found.columns, found.fine_labels
    cameras = numbers(path, "camera", columns["camera"]) if "camera" in columns else []
    rows = [
        Row(
            ImageRef(path.parent / filled(path, "path", place, columns["path"][place])),
            found.labels[place],
            None if fines is None else fines[place],
            cameras[place] if cameras else None,
        )
        for place in found.rows
    ]
    return list_rows(
        rows,
        class_names=found.class_names,
        fine_names=found.fine_names,
        origin=str(path),
        split=found.split,
    )
