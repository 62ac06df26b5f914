"""Read files of arrays and tables: npz, npy, safetensors, parquet, csv, jsonl."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
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
_EMPTY = ("", "na", "n/a", "null", "none")  # cells without a number, beside nan
_OF_NUMBERS = re.compile(r"(large_|fixed_size_)?list<\w+: (halffloat|float|double|u?int)")
_CELLS = 2**19  # of a CSV file that are held as text at a time


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of a file by name; the array of a .npy is `embeddings`. Nothing is unpickled.

    Those of .npy and .safetensors are mapped, and private: what is written to them never reaches
    the file. Raises `DataError` if the file cannot be read; its ending must be one of
    `ARRAY_FILES`.
    """
    with _reading(path):
        if path.suffix == ".npy":
            return {"embeddings": np.load(path, mmap_mode="c", allow_pickle=False)}
        if path.suffix == ".npz":
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files if name != NOTE}
        from safetensors import safe_open

        with safe_open(path, framework="pt") as safe:
            tensors = {name: safe.get_tensor(name) for name in safe.keys()}  # noqa: SIM118
        halves = {n: t.float() for n, t in tensors.items() if str(t.dtype) == "torch.bfloat16"}
        return {name: tensor.numpy() for name, tensor in (tensors | halves).items()}


def read_head(path: Path) -> tuple[list[str], list[str], str]:
    """Columns of a .csv or .parquet file, those that hold lists, and a remark for the user."""
    with _reading(path):
        if path.suffix == ".csv":
            _, names, is_row = _csv_head(path)
            remark = f"{path.name} has no header (its first line is numbers): f0, f1, ..."
            return names, [], remark * is_row
        schema = import_extra("pyarrow.parquet", extra="parquet").read_schema(path)
        _check_unique(schema.names)
        return schema.names, [f.name for f in schema if _OF_NUMBERS.match(str(f.type))], ""


def read_columns(
    path: Path, numbers: Collection[str], words: Collection[str], *, fill: bool = False
) -> dict[str, Any]:
    """Columns of a .csv or .parquet file: `words` as they are written, `numbers` as arrays.

    The array of a list column has a row per list. Empty cells are NaN. Where a column of numbers
    has something else, its value is a sentence that says so. `fill` is for short rows of a CSV.
    """
    with _reading(path):
        if path.suffix == ".csv":
            return _of_csv(path, numbers, words, fill)
        return _of_parquet(path, numbers, words)


def as_numbers(values: Sequence[Any], first: int = 1, *, comma: bool = False) -> Array | str:
    """Cells as integers or else floats, NaN for empty ones; or a sentence on what is no number.

    `first` is the number of the first row; with `comma`, 0,5 is a number.

    >>> as_numbers(["1", "2"]), as_numbers(["1", "", "0,5"], comma=True)
    (array([1, 2]), array([1. , nan, 0.5]))
    >>> as_numbers(["1", "two"])
    "is neither numbers nor a known name ('two' in row 2)"
    """
    texts = list(map(str, values))
    for kind in (int, float):
        with suppress(ValueError, OverflowError):
            return np.fromiter(map(kind, texts), kind, len(texts))
    numbers = np.full(len(texts), np.nan)
    for i, text in enumerate(texts):
        try:
            if text.strip().lower() not in _EMPTY:
                numbers[i] = float(text.replace(",", ".") if comma else text)
        except ValueError:
            return f"is neither numbers nor a known name ({text[:40]!r} in row {first + i})"
    return numbers


def read_table(path: Path, *, fill: bool = False) -> dict[str, list[Any]]:
    """The columns of a .csv, .parquet or .jsonl file by name.

    A CSV row shorter than the header, or a JSON object without a key that others have, is an error,
    unless `fill` is set, which leaves the cells empty. Raises `DataError` if the file cannot be
    read or has two columns of one name; its ending must be one of `TABLE_FILES`, or `.jsonl`.
    """
    if path.suffix != ".jsonl":
        return read_columns(path, (), read_head(path)[0], fill=fill)
    with _reading(path):
        return _jsonl(path, fill)


def read_note(path: Path) -> object:
    """The metadata that a file has under `uncollapse`, not parsed; None if it has none."""
    with _reading(path):
        if path.suffix == ".npz":
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                note: Any = archive[NOTE] if NOTE in archive.files else None
            is_text = note is not None and note.dtype.kind == "U" and note.size == 1
            return str(note.item()) if is_text else note
        if path.suffix == ".safetensors":
            from safetensors import safe_open

            with safe_open(path, framework="numpy") as safe:
                return (safe.metadata() or {}).get(NOTE)
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
    except (ImportError, DataError, MemoryError):
        raise
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except DamagedFileError as error:
        why = str(error).removeprefix(f"{path} is damaged: ")
        raise DataError(f"{path}: cannot be read: {why}") from None
    except Exception as error:  # each format has errors of its own
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        why = ": it is truncated or damaged ("
        if isinstance(error, OSError) and error.errno is not None:
            why, reason = " (", error.strerror or reason
        if reason.startswith(("Object arrays", "Array can't be memory-mapped: Python")):
            why = " without unpickling ("
        raise DataError(f"{path}: cannot be read{why}{reason})") from None


def _csv_head(path: Path) -> tuple[str, list[str], bool]:
    """Separator and columns of a CSV file, and whether its first line is a row already.

    Numbers are a header only if they count the columns, as pandas does: 0, 1, 2, ...
    """
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        lines = [re.sub('"[^"]*"', "", line) for line in islice(filter(str.strip, file), 2)] or [""]
    # Commas come last: they may be decimal ones.
    separator = next((m for m in "\t;|," if 0 < lines[0].count(m) == lines[-1].count(m)), ",")
    header = next(csv_rows(path, separator=separator))
    counts = [list(map(str, range(start, start + len(header)))) for start in (0, 1)]
    full = all(map(str.strip, header)) and header not in counts
    if full and not isinstance(as_numbers(header, comma=separator != ","), str):
        return separator, [f"f{i}" for i in range(len(header))], True
    _check_unique(header)
    return separator, header, False


def _of_csv(
    path: Path, numbers: Collection[str], words: Collection[str], fill: bool
) -> dict[str, Any]:
    separator, header, is_row = _csv_head(path)
    rows = islice(csv_rows(path, fill=fill, separator=separator), 0 if is_row else 1, None)
    parts: dict[str, Any] = {name: [] for name in (*numbers, *words)}
    size, start = max(1, _CELLS // len(header)), 1
    for block in iter(lambda: list(islice(rows, size)), []):
        for name, cells in zip(header, zip(*block, strict=True), strict=True):
            if name in words:
                parts[name] += cells
            elif name in parts:
                parts[name].append(as_numbers(cells, start, comma=separator != ","))
        start += len(block)
    for name in numbers:
        doubt = next((part for part in parts[name] if isinstance(part, str)), None)
        parts[name] = np.concatenate([np.empty(0, int), *parts[name]]) if doubt is None else doubt
    return parts


def _of_parquet(path: Path, numbers: Collection[str], words: Collection[str]) -> dict[str, Any]:
    # The buffer is for reading in parts.
    file = import_extra("pyarrow.parquet", extra="parquet").ParquetFile(path, buffer_size=2**20)
    columns: dict[str, Any] = file.read(columns=list(words)).to_pydict()
    lists = read_head(path)[1]
    for name in numbers:
        if name in lists:
            array = _of_lists(file, name)
        else:
            array = file.read(columns=[name])[name].to_numpy()
        columns[name] = array if array.dtype.kind in "fiub" else as_numbers(list(array))
    return columns


def _of_lists(file: Any, name: str) -> Array:
    """The rows of a list column, by blocks into one array; a missing list is a row of NaN."""
    lengths_of = import_extra("pyarrow.compute", extra="parquet").list_value_length
    rows, start, width = np.empty((file.metadata.num_rows, 0)), 0, 0
    for batch in file.iter_batches(1024, columns=[name]):
        lists = batch.column(name)
        lengths = set(lengths_of(lists).drop_null().to_pylist())
        width = width or max(lengths, default=0)
        if lengths - {width}:
            spread = f"{min(lengths | {width})} to {max(lengths | {width})} numbers"
            raise DataError(f"column {name!r} holds lists of {spread}; all must be alike")
        values = lists.flatten().to_numpy(zero_copy_only=False)
        if width and not rows.size:
            dtype = values.dtype if values.dtype.kind == "f" else np.float64
            rows = np.full((len(rows), width), np.nan, dtype)
        known = lists.is_valid().to_numpy(zero_copy_only=False)
        rows[start : start + len(lists)][known] = values.reshape(-1, width or 1)
        start += len(lists)
    return rows


def _jsonl(path: Path, fill: bool) -> dict[str, list[Any]]:
    rows = list(read_jsonl(path, whole=True))
    names = list(dict.fromkeys(name for row in rows for name in row))
    for number, row in enumerate(rows, 1):
        lost = [name for name in names if name not in row]
        if lost and not fill:
            raise DataError(f"object {number} has no {lost[0]!r}")
    return {name: [row.get(name) for row in rows] for name in names}


def _check_unique(names: Sequence[str]) -> None:
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        places = [str(i) for i, name in enumerate(names, 1) if name == twice]
        many = f"occurs {len(places)} times (columns {', '.join(places)})"
        raise DataError(f"column {twice!r} {many}; give each column a name of its own")
