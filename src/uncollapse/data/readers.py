"""Read files of arrays and tables: npz, npy, safetensors, parquet, csv, jsonl."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from uncollapse._base.extras import import_extra
from uncollapse._base.files import DamagedFileError, csv_rows, read_jsonl
from uncollapse.data.listing import DataError

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array

NOTE = "uncollapse"  # the key under which a file says where its rows come from
ARRAY_FILES = (".npz", ".npy", ".safetensors")
TABLE_FILES = (".parquet", ".csv")
_KINDS = {".npz": " without unpickling", ".npy": " without unpickling"}


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of a file by name; the array of a .npy is `embeddings`. Nothing is unpickled.

    Raises `DataError` if the file cannot be read; its ending must be one of `ARRAY_FILES`.
    """
    with _reading(path):
        if path.suffix == ".safetensors":
            from safetensors.numpy import load_file

            return dict(load_file(path))
        if path.suffix == ".npy":
            # Mapped, and private: what is written to the array never reaches the file.
            return {"embeddings": np.load(path, mmap_mode="c", allow_pickle=False)}
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files if name != NOTE}


def read_table(path: Path, *, fill: bool = False) -> dict[str, list[Any]]:
    """The columns of a .csv, .parquet or .jsonl file by name.

    A CSV row shorter than the header, or a JSON object without a key that others have, is an error,
    unless `fill` is set, which leaves the cells empty. Raises `DataError` if the file cannot be
    read or has two columns of one name; its ending must be one of `TABLE_FILES`, or `.jsonl`.
    """
    with _reading(path):
        if path.suffix == ".jsonl":
            return _jsonl(path, fill)
        if path.suffix == ".csv":
            return _csv(path, fill)
        parquet = import_extra("pyarrow.parquet", extra="parquet")
        _check_unique(parquet.read_schema(path).names)
        columns: dict[str, list[Any]] = parquet.read_table(path).to_pydict()
        return columns


def read_note(path: Path) -> object:
    """The metadata that a file has under `uncollapse`, not parsed; None if it has none."""
    with _reading(path):
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                note = archive[NOTE] if NOTE in archive.files else None
            if note is None or note.dtype.kind != "U" or note.size != 1:
                return note
            return str(note.item())
        if path.suffix == ".safetensors":
            from safetensors import safe_open

            with safe_open(path, framework="numpy") as file:
                return (file.metadata() or {}).get(NOTE)
        if path.suffix == ".parquet":
            parquet = import_extra("pyarrow.parquet", extra="parquet")
            data = (parquet.read_schema(path).metadata or {}).get(NOTE.encode())
            return None if data is None else data.decode("utf-8", "replace")
    return None


def read_lines(path: Path, name: str) -> list[str]:
    """The lines of a text file that belongs to the dataset `name`."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        raise DataError(f"{name}: no file {path}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: {path} is not text in UTF-8 ({error.reason})") from None


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Let a `DataError` about what a file holds begin with the file's path."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong while reading a file into a `DataError` that names it."""
    try:
        with named_errors(path):
            yield
    except (ImportError, DataError):
        raise
    except DamagedFileError as error:
        why = str(error).removeprefix(f"{path} is damaged: ")
        raise DataError(f"{path}: cannot be read: {why}") from None
    except Exception as error:  # each format has errors of its own
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path}: cannot be read{_KINDS.get(path.suffix, '')} ({reason})") from None


def _csv(path: Path, fill: bool) -> dict[str, list[Any]]:
    if path.stat().st_size == 0:
        return {}
    header, *rows = csv_rows(path, fill=fill)
    if len(header) == 1 and (other := next((mark for mark in ";\t|" if mark in header[0]), "")):
        raise DataError(f"its columns are separated by {other!r}; save it with commas")
    _check_unique(header)
    return {name: [row[i] for row in rows] for i, name in enumerate(header)}


def _jsonl(path: Path, fill: bool) -> dict[str, list[Any]]:
    rows = list(read_jsonl(path, whole=True))
    names = list(dict.fromkeys(name for row in rows for name in row))
    for number, row in enumerate(rows, 1):
        lost = [name for name in names if name not in row]
        if lost and not fill:
            raise DataError(f"object {number} has no {lost[0]!r}")
    return {name: [row.get(name) for row in rows] for name in names}


def _check_unique(names: Sequence[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        places = ", ".join(str(i) for i, name in enumerate(names, 1) if name == twice)
        many = f"occurs {names.count(twice)} times (columns {places})"
        raise DataError(f"column {twice!r} {many}; give each column a name of its own")
