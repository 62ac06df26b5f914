"""Files: written beside their target and renamed into place; damaged ones raise a clear error.

The only place that opens a file for writing. A reader of what is written here sees the old file or
the new one, never a part of it, whatever happens to the writer.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import tomllib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO


class DamagedFileError(ValueError):
    """A file that cannot be read as what it should be; the message names it and says why."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is damaged: {why}")
        self.path, self.why = path, why


@contextmanager
def written_aside(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """Yield a path beside `path` to write to; it replaces `path` on success, is removed on error.

    With `folder` the path yielded is a new folder; an old one at `path` stays whole until it is
    replaced. A missing parent folder is created; the file (each file of the folder) is on
    disk before the rename.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "a.txt"
    >>> with written_aside(target) as aside:
    ...     _ = aside.write_text("whole")
    >>> target.read_text(), [p.name for p in target.parent.iterdir()]
    ('whole', ['a.txt'])
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = _beside(path)
    try:
        if folder:
            aside.mkdir()
        yield aside
        for part in sorted(aside.rglob("*")) if folder else [aside]:
            if part.is_file():
                sync(part)
        _put(aside, path)
        sync(path.parent)
    except BaseException:
        if folder:
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.unlink(missing_ok=True)
        raise


@contextmanager
def streamed_aside(path: Path) -> Iterator[BinaryIO]:
    """Yield a binary file to write to, as `written_aside` does, for content made in pieces."""
    with written_aside(path) as aside, aside.open("wb") as file:
        yield file


def write_text(path: Path, text: str) -> None:
    """Write a text file, UTF-8, as `written_aside` does."""
    with written_aside(path) as aside:
        aside.write_text(text, encoding="utf-8", newline="")


def write_json(path: Path, value: object) -> None:
    """Write a JSON file, as `written_aside` does."""
    write_text(path, json.dumps(value, indent=1))


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file with a header, as `written_aside` does."""
    with written_aside(path) as aside, aside.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def open_log(path: Path, keep: int = 0) -> TextIO:
    """Open a file to append lines to; what is past `keep` bytes is cut off first.

    A log grows where it is: a line cut short by a crash lies past the offset that the last
    checkpoint kept.
    """
    with path.open("ab") as file:
        os.truncate(file.fileno(), min(keep, file.tell()))
    return path.open("a", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """The object of a JSON file; `DamagedFileError` if it holds anything else."""
    try:
        value = json.loads(_text(path))
    except ValueError as error:
        raise DamagedFileError(path, f"not JSON ({error})") from None
    if not isinstance(value, dict):
        raise DamagedFileError(path, f"expected a dict, found {type(value).__name__}")
    return value


def read_jsonl(
    path: Path, complaints: list[str] | None = None, *, whole: bool = False
) -> Iterator[dict[str, Any]]:
    """The rows of a JSONL file; a last line cut short by a crash is skipped, unless `whole`.

    Any other line that is not a JSON object raises `DamagedFileError` with its number; with
    `complaints` it is skipped as well, and the error message is appended to that list.
    """
    lines = path.read_bytes().split(b"\n")  # each decoded by itself: a cut may split a character
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        why = f"line {number} is not a JSON object"
        try:
            row = json.loads(line)
        except ValueError as error:
            if number == len(lines) and not whole:  # no newline: being written, or cut short
                return
            row, why = None, f"line {number} is not JSON ({error})"
        if isinstance(row, dict):
            yield row
        elif complaints is None:
            raise DamagedFileError(path, why)
        else:
            complaints.append(str(DamagedFileError(path, why)))


def read_csv(path: Path, *, fill: bool = False) -> tuple[list[str], list[list[str]]]:
    """`(header, rows)` of a CSV file; every row has as many cells as the header, or it raises.

    With `fill` a short row gets empty cells at its end.
    """
    # The file's own line ends: a quoted cell may hold some.
    reader = csv.reader(io.StringIO(_text(path), newline=""), strict=True)
    rows: list[list[str]] = []
    try:
        for row in filter(None, reader):  # an empty line is no row
            if fill and rows:
                row += [""] * (len(rows[0]) - len(row))
            if rows and len(row) != len(rows[0]):
                why = f"line {reader.line_num} has {len(row)} cells, the header {len(rows[0])}"
                raise DamagedFileError(path, why)
            rows.append(row)
    except csv.Error as error:
        raise DamagedFileError(path, f"line {reader.line_num} is not CSV ({error})") from None
    if not rows:
        raise DamagedFileError(path, "it is empty")
    return rows[0], rows[1:]


def read_toml(path: Path) -> dict[str, Any]:
    """The table of a TOML file; `DamagedFileError` if it is not TOML."""
    try:
        return tomllib.loads(_text(path))
    except tomllib.TOMLDecodeError as error:
        raise DamagedFileError(path, f"not TOML ({error})") from None


def sync(path: Path) -> None:
    """Flush a file or folder to disk."""
    if os.name != "posix":  # Windows syncs no folder, and no file opened for reading
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DamagedFileError(path, f"not UTF-8 text ({error.reason})") from None


def _beside(path: Path) -> Path:
    # The suffix stays last: some writers choose their format by it.
    return path.with_name(f".{path.stem}.{uuid.uuid4().hex[:12]}{path.suffix}")


def _put(aside: Path, path: Path) -> None:
    """Rename into place; a folder, which cannot be renamed over, is moved out of the way first."""
    if not (path.is_dir() and aside.is_dir()):
        os.replace(aside, path)
        return
    old = _beside(path)
    os.replace(path, old)
    try:
        os.replace(aside, path)
    except BaseException:
        os.replace(old, path)
        raise
    shutil.rmtree(old, ignore_errors=True)
