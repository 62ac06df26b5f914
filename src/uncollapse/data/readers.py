"""Files that hold arrays or tables, of any origin: npz, npy, safetensors, parquet, csv, jsonl."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from uncollapse._base.extras import import_extra
from uncollapse._base.files import DamagedFileError, read_csv, read_jsonl
from uncollapse.data.load_report import DataError
from uncollapse.data.origin import NOTE

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array

__all__ = [
    "ARRAY_FILES",
    "TABLE_FILES",
    "named_errors",
    "read_arrays",
    "read_lines",
    "read_note",
    "read_table",
]

_T = TypeVar("_T")


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of a file by name, that of a .npy as `embeddings`; nothing is unpickled.

    `DataError` where the file cannot be read; its ending must be one of `ARRAY_FILES`.
    """
    return _guarded(path, *ARRAY_FILES[path.suffix])


def read_table(path: Path, *, fill: bool = False) -> dict[str, list[Any]]:
    """The columns of a .csv, .parquet or .jsonl file by name.

    A CSV row shorter than the header, or a JSON object without a key that others have, is an error,
    or with `fill` has empty cells. `DataError` where the file cannot be read or a column's name
    occurs twice; its ending must be one of `TABLE_FILES`, or `.jsonl`.
    """
    if path.suffix == ".jsonl":
        return _guarded(path, partial(_jsonl, fill=fill), ": not JSON lines")
    if path.suffix == ".parquet":
        return _guarded(path, _parquet, ": not a Parquet file")
    return _guarded(path, partial(_csv, fill=fill), ": not a CSV file in UTF-8")


def read_note(path: Path) -> object:
    """What a file says of itself under `uncollapse`, unread as yet; None where it says nothing."""
    reader = {".npz": _npz_note, ".safetensors": _safetensors_note, ".parquet": _parquet_note}
    if path.suffix not in reader:
        return None
    how = ARRAY_FILES[path.suffix][1] if path.suffix in ARRAY_FILES else ": not a Parquet file"
    return _guarded(path, reader[path.suffix], how)


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


def _guarded(path: Path, reader: Callable[[Path], _T], how: str) -> _T:
    try:
        return reader(path)
    except ImportError:
        raise
    except DamagedFileError as error:
        why = str(error).removeprefix(f"{path} is damaged: ")
        raise DataError(f"{path}: cannot be read: {why}") from None
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except Exception as error:  # each format has errors of its own
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(f"{path}: cannot be read{how} ({reason})") from None


def _npz(path: Path) -> dict[str, Array]:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _npy(path: Path) -> dict[str, Array]:
    return {"embeddings": np.load(path, allow_pickle=False)}


def _safetensors(path: Path) -> dict[str, Array]:
    from safetensors.numpy import load_file

    return dict(load_file(path))


def _parquet(path: Path) -> dict[str, list[Any]]:
    parquet = import_extra("pyarrow.parquet", extra="parquet")
    _check_unique(parquet.read_schema(path).names)
    columns: dict[str, list[Any]] = parquet.read_table(path).to_pydict()
    return columns


def _csv(path: Path, fill: bool) -> dict[str, list[Any]]:
    if path.stat().st_size == 0:
        return {}
    header, rows = read_csv(path, fill=fill)
    if len(header) == 1 and (other := next((mark for mark in ";\t|" if mark in header[0]), "")):
        raise DataError(f"its columns are separated by {other!r}; save it with commas")
    _check_unique(header)
    return {name: [row[place] for row in rows] for place, name in enumerate(header)}


def _jsonl(path: Path, fill: bool) -> dict[str, list[Any]]:
    rows = list(read_jsonl(path, whole=True))
    names = list(dict.fromkeys(name for row in rows for name in row))
    for place, row in enumerate(rows):
        lost = [name for name in names if name not in row]
        if lost and not fill:
            raise DataError(f"object {place + 1} has no {lost[0]!r}")
    return {name: [row.get(name) for row in rows] for name in names}


def _npz_note(path: Path) -> object:
    with np.load(path, allow_pickle=False) as archive:
        found = archive[NOTE] if NOTE in archive.files else None
    if found is None or found.dtype.kind != "U" or found.size != 1:
        return found
    return str(found.item())


def _safetensors_note(path: Path) -> object:
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        return (file.metadata() or {}).get(NOTE)


def _parquet_note(path: Path) -> object:
    parquet = import_extra("pyarrow.parquet", extra="parquet")
    found = (parquet.read_schema(path).metadata or {}).get(NOTE.encode())
    return None if found is None else found.decode("utf-8", "replace")


def _check_unique(names: Sequence[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        places = ", ".join(str(i + 1) for i, name in enumerate(names) if name == twice)
        many = f"occurs {names.count(twice)} times (columns {places})"
        raise DataError(f"column {twice!r} {many}; give each column a name of its own")


# By ending: the reader, and what an error says of how it reads.
ARRAY_FILES: dict[str, tuple[Callable[[Path], dict[str, Array]], str]] = {
    ".npz": (_npz, " without unpickling"),
    ".npy": (_npy, " without unpickling"),
    ".safetensors": (_safetensors, ""),
}
TABLE_FILES = (".parquet", ".csv")
