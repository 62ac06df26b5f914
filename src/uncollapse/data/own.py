"""The user's own samples: folders of images, tables of images or texts, arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from uncollapse.data.listing import DataError, DatasetInfo, Listing, Row, TextSource, is_image
from uncollapse.data.readers import ARRAY_FILES, read_arrays, read_lines, read_table

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array

TEXT_TABLES = (".csv", ".jsonl", ".parquet")
_SPLITS = ("train", "val", "test", "query", "gallery")
_SAMPLES = ("features", "embeddings", "x", "X", "images")


def list_folder(info: DatasetInfo, root: Path | None, split: str | None) -> Listing:
    """Images below `root`; classes are numbered by name over all splits together.

    Without split folders there is only `all`. `split=None` means `train` if there is such a folder.
    """
    if root is None or not root.is_dir():
        raise DataError(f"folder: root must be a folder of your images, got {root}")
    parts = {name: root / name for name in _SPLITS if (root / name).is_dir()}
    split = split or ("train" if "train" in parts else "all")
    if split != "all" and split not in parts:
        there = ", ".join([*parts, "all"])
        raise DataError(f"folder: no split {split!r} in {root}; there is: {there}")
    images: list[tuple[Path, str, str, str]] = []  # with its split, class and finer class
    ignored: list[str] = []
    for part, base in (parts or {"all": root}).items():
        for path in sorted(p for p in base.rglob("*") if p.is_file()):
            names = path.relative_to(base).parts
            if len(names) < 2 or not is_image(path.name):
                ignored += ["/".join(path.parts[-2:])] * (split in ("all", part))
            else:
                images.append((path, part, names[0], "/".join(names[:-1])))
    if not images:
        why = f"no images in class folders below {root}"
        raise DataError(f"folder: {why}; expected\n{info.layout}")
    classes = {name: i for i, name in enumerate(sorted({image[2] for image in images}))}
    fines = {name: i for i, name in enumerate(sorted({image[3] for image in images}))}
    nested = len(fines) > len(classes)
    return Listing.of_rows(
        [
            Row(path, classes[label], fines[fine] if nested else None)
            for path, part, label, fine in images
            if split in ("all", part)
        ],
        class_names={number: name for name, number in classes.items()},
        fine_names={number: name for name, number in fines.items()} if nested else {},
        ignored=tuple(ignored),
        origin=str(root),
        split=split,
    )


def list_manifest(info: DatasetInfo, root: Path | None, split: str | None) -> Listing:
    """The rows of the file whose `split` is the one asked for; without that column all of them.

    Labels that are all whole numbers are kept; words are numbered by name over the whole file.
    """
    path, table = _read_table("manifest", root, "path", (".csv", ".parquet"))
    rows, known = _labelled(path, table, split)
    labels, fine = known.pop("labels"), known.pop("fine_labels")
    cameras = _cameras(path, table["camera"]) if "camera" in table else None
    return Listing.of_rows(
        [
            Row(
                path.parent / _cell(path, "path", row, table["path"][row]),
                labels[row],
                None if fine is None else fine[row],
                None if cameras is None else cameras[row],
            )
            for row in rows
        ],
        **known,
    )


def list_texts(info: DatasetInfo, root: Path | None, split: str | None) -> Listing:
    """The rows of the file whose `split` is the one asked for; without that column all of them.

    Labels that are all whole numbers are kept; words are numbered by name over the whole file.
    """
    path, table = _read_table("texts", root, "text", TEXT_TABLES)
    rows, known = _labelled(path, table, split)
    texts = _texts(path, table["text"])
    return Listing(images=TextSource(tuple(texts)), **known).select(rows)


def read_texts(path: Path) -> list[str]:
    """The texts of a file without labels: the column `text`, or the lines of a .txt file."""
    endings = (".txt", *TEXT_TABLES)
    if path.suffix not in endings:
        raise DataError(f"{path}: expected a file of texts, ending in {', '.join(endings)}")
    if path.suffix == ".txt":
        texts = [line for line in read_lines(path, "texts") if line.strip()]
    else:
        table = read_table(path, fill=True)
        if "text" not in table:
            raise DataError(f"{path}: no column 'text'; its columns are {', '.join(table)}")
        texts = _texts(path, table["text"])
    if not texts:
        raise DataError(f"{path}: no texts in it")
    return texts


def list_arrays(info: DatasetInfo, root: Path | None, split: str | None) -> Listing:
    """The rows whose `split` is the one asked for, or the file of that split in a folder."""
    if root is None or not root.exists():
        raise DataError(f"arrays: root must be a file or folder of arrays, got {root}")
    if root.is_dir():
        split = split or "train"
        files = [root / f"{split}{ending}" for ending in ARRAY_FILES]
        path = next((file for file in files if file.is_file()), None)
        if path is None:
            names = ", ".join(file.name for file in files)
            raise DataError(f"arrays: none of {names} in {root}")
        return replace(_of_arrays(path, _read_arrays(path), "all"), split=split)
    arrays = _read_arrays(root)
    splits = list(map(str, arrays.get("split", ())))
    return _of_arrays(root, arrays, split or ("train" if "train" in splits else "all"))


def _of_arrays(path: Path, arrays: dict[str, Array], split: str) -> Listing:
    held = ", ".join(arrays) or "nothing"
    name = next((key for key in _SAMPLES if key in arrays), None)
    if name is None:
        raise DataError(f"{path}: none of {', '.join(_SAMPLES)}; it holds {held}")
    samples = arrays[name]
    features = samples.ndim == 2 and samples.dtype.kind in "fiu"
    images = samples.ndim == 4 and samples.dtype == np.uint8 and samples.shape[1] in (1, 3)
    if not features and not images:
        given = f"{samples.dtype} of shape {samples.shape}"
        raise DataError(f"{path}: {name} is {given}; expected numbers [N, D] or uint8 [N, C, H, W]")
    if features:
        samples = samples.astype(np.float32)
        if not np.isfinite(samples).all():
            raise DataError(f"{path}: {name} holds NaN or infinity")
    labels = arrays.get("labels", arrays.get("y"))
    if labels is None:
        raise DataError(f"{path}: no labels; it holds {held}")
    columns = {"labels": labels} | {k: arrays[k] for k in ("fine_labels", "cameras") if k in arrays}
    numbers: dict[str, Any] = {}
    names: dict[str, dict[int, str]] = {}
    for kind, values in columns.items():
        numbers[kind], names[kind] = _array_labels(path, kind, values, len(samples))
    splits = list(map(str, arrays.get("split", ())))
    rows = _rows_of_split(path, splits if len(splits) == len(samples) else [], split, len(samples))
    whole = Listing(
        images=samples,
        **numbers,
        class_names=names["labels"],
        fine_names=names.get("fine_labels", {}),
        origin=str(path),
        split=split,
    )
    return whole if len(rows) == len(samples) else whole.select(rows)


def _read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of a file by name; the labels of a .npy are in a second file beside it."""
    if path.suffix not in ARRAY_FILES:
        raise DataError(f"arrays: expected one of {', '.join(ARRAY_FILES)}, got {path.name}")
    arrays = read_arrays(path)
    if path.suffix != ".npy":
        return arrays
    beside = (path.with_name(f"{path.stem}_labels.npy"), path.with_name("labels.npy"))
    labels = next((file for file in beside if file.is_file()), None)
    if labels is None:
        names = " or ".join(file.name for file in beside)
        raise DataError(f"{path}: no labels: neither {names} is beside it")
    return arrays | {"labels": next(iter(read_arrays(labels).values()))}


def _array_labels(path: Path, name: str, values: Array, count: int) -> tuple[Array, dict[int, str]]:
    """Labels as numbers, and the names of those that were words."""
    if values.shape != (count,) or values.dtype.kind not in "iubUS":
        given = f"{values.dtype} of shape {values.shape}"
        raise DataError(f"{path}: {name} is {given}; expected {count} whole numbers or words")
    if values.dtype == np.uint64 and values.max(initial=0) > np.iinfo(np.int64).max:
        values = values.astype(str)  # beyond torch's numbers: names
    return _named(values)


def _named(values: Array) -> tuple[Array, dict[int, str]]:
    """Labels as numbers, and the name of each: words are numbered by name."""
    names, numbers = np.unique(values, return_inverse=True)
    if values.dtype.kind in "US":
        return numbers.astype(np.int64), dict(enumerate(map(str, names)))
    return values.astype(np.int64), {int(name): str(int(name)) for name in names}


# Tables: a column with each sample, its label, and a split.


def _read_table(
    name: str, root: Path | None, sample: str, endings: Sequence[str]
) -> tuple[Path, dict[str, list[Any]]]:
    """The file of the dataset `name`, and its columns, which include `sample` and `label`."""
    kinds = f"{', '.join(endings[:-1])} or {endings[-1]}"
    if root is None or not root.is_file():
        raise DataError(f"{name}: root must be a {kinds} file, got {root}")
    if root.suffix not in endings:
        raise DataError(f"{name}: expected a {kinds} file, got {root.name}")
    table = read_table(root, fill=True)
    for column in (sample, "label"):
        if column not in table:
            there = ", ".join(table) or "none"
            raise DataError(f"{root}: no column {column!r}; its columns are {there}")
    return root, table


def _labelled(
    path: Path, table: dict[str, list[Any]], split: str | None
) -> tuple[list[int], dict[str, Any]]:
    """The rows of a split, and the other fields of a `Listing` of all rows.

    `split` defaults to `train` if there is such a split, otherwise to `all`.
    """
    splits = list(map(str, table.get("split", [])))
    split = split or ("train" if "train" in splits else "all")
    rows = _rows_of_split(path, splits, split, len(table["label"]))
    known: dict[str, Any] = {"fine_labels": None, "origin": str(path), "split": split}
    known["labels"], known["class_names"] = _table_labels(path, table, "label")
    if "fine_label" in table:
        known["fine_labels"], known["fine_names"] = _table_labels(path, table, "fine_label")
    return rows, known


def _table_labels(
    path: Path, table: dict[str, list[Any]], column: str
) -> tuple[Array, dict[int, str]]:
    """Labels as numbers, and the name of each number."""
    texts = [_cell(path, column, row, value) for row, value in enumerate(table[column])]
    if all(map(_is_whole, texts)):
        return np.array(list(map(int, texts)), np.int64), {int(text): text for text in texts}
    return _named(np.array(texts))


def _rows_of_split(path: Path, splits: Sequence[str], split: str, count: int) -> list[int]:
    if split == "all":
        return list(range(count))
    if split not in splits:
        there = ", ".join([*sorted(set(splits)), "all"])
        raise DataError(f"{path}: no rows of split {split!r}; there is: {there}")
    return [row for row, word in enumerate(splits) if word == split]


def _cell(path: Path, column: str, row: int, value: Any) -> str:
    """The value of a cell as text; an empty cell or a list is an error."""
    if value is None or value == "":
        raise DataError(f"{path}: column {column!r} is empty in row {row + 1}")
    if isinstance(value, list | dict):
        what = f"holds a {type(value).__name__} in row {row + 1}"
        raise DataError(f"{path}: column {column!r} {what}; expected a word or a number")
    return str(value)


def _cameras(path: Path, values: list[Any]) -> list[int]:
    texts = [_cell(path, "camera", row, value) for row, value in enumerate(values)]
    wrong = next((text for text in texts if not _is_whole(text)), None)
    if wrong is not None:
        allowed = "whole numbers of at most 18 digits"
        raise DataError(f"{path}: column 'camera' holds {wrong!r}; expected {allowed}")
    return list(map(int, texts))


def _is_whole(text: str) -> bool:
    """Whether it is a whole number that fits 64 bits; a longer one is a name."""
    digits = text.removeprefix("-")
    return digits.isdecimal() and len(digits) <= 18


def _texts(path: Path, values: Sequence[object]) -> list[str]:
    texts = [_cell(path, "text", row, value) for row, value in enumerate(values)]
    blank = next((row for row, text in enumerate(texts, 1) if not text.strip()), None)
    if blank is not None:
        raise DataError(f"{path}: column 'text' is empty in row {blank}")
    return texts
