"""The user's own samples: folders of images, tables of images or texts, arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from uncollapse.data.listing import DataError, Listing, Row, TextSource, dataset_info, is_image
from uncollapse.data.readers import ARRAY_FILES, read_arrays, read_lines, read_table

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array

__all__ = ["TEXT_TABLES", "list_arrays", "list_folder", "list_manifest", "list_texts", "read_texts"]

TEXT_TABLES = (".csv", ".jsonl", ".parquet")
_SPLITS = ("train", "val", "test", "query", "gallery")
_SAMPLES = ("features", "embeddings", "x", "X", "images")


def list_folder(root: Path | None, split: str | None) -> Listing:
    """Images below `root`; classes are numbered by name over all splits together.

    Without split folders there is only `all`. `split=None` is `train` where there is one.
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
        layout = dataset_info("folder").layout
        raise DataError(f"folder: no images in class folders below {root}; expected\n{layout}")
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


def list_manifest(root: Path | None, split: str | None) -> Listing:
    """The rows of the file whose `split` is the one asked for; without that column all of them.

    Labels that are all whole numbers are kept; words are numbered by name over the whole file.
    """
    table = _read_labelled("manifest", root, split, "path", (".csv", ".parquet"))
    path, paths = table.path, table.columns["path"]
    cameras = _cameras(path, table.columns["camera"]) if "camera" in table.columns else None
    rows = [
        Row(
            path.parent / _cell(path, "path", row, paths[row]),
            table.labels[row],
            None if table.fine_labels is None else table.fine_labels[row],
            None if cameras is None else cameras[row],
        )
        for row in table.rows
    ]
    return Listing.of_rows(
        rows,
        class_names=table.class_names,
        fine_names=table.fine_names,
        origin=str(path),
        split=table.split,
    )


def list_texts(root: Path | None, split: str | None) -> Listing:
    """The rows of the file whose `split` is the one asked for; without that column all of them.

    Labels that are all whole numbers are kept; words are numbered by name over the whole file.
    """
    table = _read_labelled("texts", root, split, "text", TEXT_TABLES)
    texts, fines = _texts(table.path, table.columns["text"]), table.fine_labels
    return Listing(
        images=TextSource(tuple(texts[row] for row in table.rows)),
        labels=np.array([table.labels[row] for row in table.rows], np.int64),
        fine_labels=None if fines is None else np.array([fines[row] for row in table.rows]),
        class_names=table.class_names,
        fine_names=table.fine_names,
        origin=str(table.path),
        split=table.split,
    )


def read_texts(path: Path) -> list[str]:
    """The texts of a file without labels: its column `text`, or the lines of a .txt file."""
    endings = (".txt", *TEXT_TABLES)
    if path.suffix not in endings:
        raise DataError(f"{path}: expected a file of texts, ending in {', '.join(endings)}")
    if path.suffix == ".txt":
        texts = [line for line in read_lines(path, "texts") if line.strip()]
    elif not path.is_file():
        raise DataError(f"{path}: no such file")
    else:
        table = read_table(path, fill=True)
        if "text" not in table:
            raise DataError(f"{path}: no column 'text'; its columns are {', '.join(table)}")
        texts = _texts(path, table["text"])
    if not texts:
        raise DataError(f"{path}: no texts in it")
    return texts


def list_arrays(root: Path | None, split: str | None) -> Listing:
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
    """The arrays of a file by name; the labels of a .npy are in another file beside it."""
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
    if values.dtype.kind in "US":
        words, numbers = np.unique(values, return_inverse=True)
        return numbers.astype(np.int64), dict(enumerate(map(str, words)))
    numbers = values.astype(np.int64)
    return numbers, {int(number): str(number) for number in np.unique(numbers)}


# Tables: a column with each sample, its label, and a split.


@dataclass(frozen=True)
class _LabelledTable:
    """A split of a table: `rows` are those of the split; columns and labels are of all rows."""

    path: Path
    columns: dict[str, list[Any]]
    split: str
    rows: list[int]
    labels: list[int]
    class_names: dict[int, str]
    fine_labels: list[int] | None
    fine_names: dict[int, str]


def _read_labelled(
    name: str, root: Path | None, split: str | None, sample: str, endings: Sequence[str]
) -> _LabelledTable:
    """Read the file of the dataset `name`, which has the columns `sample` and `label`.

    `split` is by default `train` where there is such a split, else `all`.
    """
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
    splits = list(map(str, table.get("split", [])))
    split = split or ("train" if "train" in splits else "all")
    rows = _rows_of_split(root, splits, split, len(table["label"]))
    labels, names = _numbered(root, "label", table["label"])
    fine: tuple[list[int] | None, dict[int, str]] = (None, {})
    if "fine_label" in table:
        fine = _numbered(root, "fine_label", table["fine_label"])
    return _LabelledTable(root, table, split, rows, labels, names, *fine)


def _rows_of_split(path: Path, splits: Sequence[str], split: str, count: int) -> list[int]:
    if split == "all":
        return list(range(count))
    if split not in splits:
        there = ", ".join([*sorted(set(splits)), "all"])
        raise DataError(f"{path}: no rows of split {split!r}; there is: {there}")
    return [row for row, word in enumerate(splits) if word == split]


def _cell(path: Path, column: str, row: int, value: Any) -> str:
    """The value of a cell as text; an empty one, or one that holds several, is an error."""
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
    return [int(text) for text in texts]


def _numbered(path: Path, column: str, values: list[Any]) -> tuple[list[int], dict[int, str]]:
    """Labels as numbers, and the name of each number."""
    texts = [_cell(path, column, row, value) for row, value in enumerate(values)]
    if all(map(_is_whole, texts)):
        return [int(text) for text in texts], {int(text): text for text in texts}
    numbers = {text: number for number, text in enumerate(sorted(set(texts)))}
    return [numbers[text] for text in texts], {number: text for text, number in numbers.items()}


def _is_whole(text: str) -> bool:
    """Whether it is a whole number that 64 bits hold; a longer one is a name."""
    digits = text.removeprefix("-")
    return digits.isdecimal() and len(digits) <= 18


def _texts(path: Path, values: Sequence[object]) -> list[str]:
    texts = [_cell(path, "text", row, value) for row, value in enumerate(values)]
    blank = next((row for row, text in enumerate(texts, 1) if not text.strip()), None)
    if blank is not None:
        raise DataError(f"{path}: column 'text' is empty in row {blank}")
    return texts
