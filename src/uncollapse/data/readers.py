"""Files that hold arrays or tables, of any origin: npz, npy, safetensors, parquet, csv, jsonl."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from uncollapse._base.extras import import_extra
from uncollapse._base.files import DamagedFileError, read_csv, read_jsonl
from uncollapse.data.listing import DataError

if TYPE_CHECKING:
    from uncollapse._base.arrays import Array

__all__ = [
    "ARRAY_FILES",
    "NOTE",
    "TABLE_FILES",
    "Note",
    "Origin",
    "StartScale",
    "named_errors",
    "parse_note",
    "read_arrays",
    "read_lines",
    "read_note",
    "read_table",
    "write_note",
]


# What a file of embeddings says of its rows: which run they are of, and its scale at the start.

NOTE = "uncollapse"
_FORMAT = 1
_LONGEST = 500  # characters of a name that is shown in a line


@dataclass(frozen=True)
class StartScale:
    """The scale of a run's embedding before training, of `rows` rows of `split`.

    `spread`, `cdnv`, `fine_agreement` and `fine_chance` (see `health.Health`) are None where they
    are not known.
    """

    diameter: float
    spread: float | None
    cdnv: float | None
    split: str
    rows: int
    fine_agreement: float | None = None
    fine_chance: float | None = None

    def __str__(self) -> str:
        return (
            f"diameter {self.diameter:.3g} before training, of {self.rows:,} rows of {self.split}"
        )


@dataclass(frozen=True)
class Origin:
    """The run that embedded the rows, by its folder's name: at which step, which split.

    `split` is None for images of one's own; `start` None where no scale is known to compare with.
    `cosine` says whether the run's loss compares directions; None where that is not known.
    """

    run: str
    step: int
    split: str | None = None
    start: StartScale | None = None
    cosine: bool | None = None


@dataclass(frozen=True)
class Note:
    """All that a file says of itself; `texts` are columns of words that its format cannot hold."""

    origin: Origin | None = None
    texts: Mapping[str, Sequence[str]] | None = None


def write_note(note: Note) -> str:
    """The note as JSON.

    >>> parse_note(write_note(Note(Origin("a", 3)))).origin
    Origin(run='a', step=3, split=None, start=None, cosine=None)
    """
    plain: dict[str, Any] = {"format": _FORMAT}
    if note.origin is not None:
        plain["origin"] = asdict(note.origin)
    if note.texts:
        plain["texts"] = {name: list(words) for name, words in note.texts.items()}
    return json.dumps(plain)


def parse_note(text: object) -> Note:
    """The note that `write_note` wrote; `DataError` says what is odd about another."""
    if not isinstance(text, str):
        raise DataError(f"{type(text).__name__} where JSON was expected")
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {str(error)[:80]}") from None
    known = _table(plain, "the note")
    if known.get("format") != _FORMAT:
        raise DataError(f"format {str(known.get('format'))[:20]}, expected {_FORMAT}")
    origin = None if known.get("origin") is None else _origin(_table(known["origin"], "origin"))
    texts = _table(known.get("texts", {}), "texts")
    for name, words in texts.items():
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise DataError(f"texts.{name[:20]} is no list of words")
    return Note(origin, texts or None)


def _origin(plain: dict[str, Any]) -> Origin:
    split, start, cosine = (plain.get(key) for key in ("split", "start", "cosine"))
    if not isinstance(cosine, bool | None):
        raise DataError(f"cosine is {_shown(cosine)}, expected true or false")
    return Origin(
        _word(plain, "run"),
        _count(plain, "step", 0),
        None if split is None else _word(plain, "split"),
        None if start is None else _start(_table(start, "start")),
        cosine,
    )


def _start(plain: dict[str, Any]) -> StartScale:
    spread, cdnv = (
        None if plain.get(key) is None else _size(plain, key) for key in ("spread", "cdnv")
    )
    split, rows = _word(plain, "split"), _count(plain, "rows", 1)
    fine = (_share(plain, key) for key in ("fine_agreement", "fine_chance"))
    return StartScale(_size(plain, "diameter"), spread, cdnv, split, rows, *fine)


def _table(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{name} is no table")
    return value


def _word(plain: dict[str, Any], key: str) -> str:
    value = plain.get(key)
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise DataError(f"{key} is {_shown(value)}, expected at most {_LONGEST} characters")
    return value


def _count(plain: dict[str, Any], key: str, least: int) -> int:
    value = plain.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**63:
        raise DataError(f"{key} is {_shown(value)}, expected a whole number from {least}")
    return value


def _size(plain: dict[str, Any], key: str) -> float:
    value = plain.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value) if abs(value) < 1e308 else math.inf
        if math.isfinite(number) and number > 0:
            return number
    raise DataError(f"{key} is {_shown(value)}, expected a positive number")


def _share(plain: dict[str, Any], key: str) -> float | None:
    value = plain.get(key)
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise DataError(f"{key} is {_shown(value)}, expected a number from 0 to 1")


def _shown(value: object) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 2**63 else "a huge number"
    return text if len(text) <= 40 else f"{text[:40]}..."


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
